"""Generate seawall/proto/gen from seawall/proto/*.proto; `make proto` calls it.

python tools/proto.py [TARGET]   TARGET: a directory to write to instead (the test of up-to-dateness uses one)
"""

import sys
import tempfile
from importlib.resources import files
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "seawall" / "proto"
# The virtual directory of our files: protoc writes it into imports, and into the names that protobuf's pool knows.
PACKAGE = "seawall/proto/gen"


def generate(target: Path) -> list[str]:
    """Write the modules and stubs for all .proto files into `target`; returns their names."""
    from grpc_tools import protoc  # type: ignore[import-untyped]

    sources = sorted(SOURCE.glob("*.proto"))
    with tempfile.TemporaryDirectory() as scratch:
        code = protoc.main(
            [
                "protoc",
                f"-I{PACKAGE}={SOURCE}",
                f"-I{files('grpc_tools') / '_proto'}",
                f"--python_out={scratch}",
                f"--pyi_out={scratch}",
                *(f"{PACKAGE}/{s.name}" for s in sources),
            ]
        )
        if code:
            raise SystemExit(code)
        target.mkdir(parents=True, exist_ok=True)
        made = sorted((Path(scratch) / PACKAGE).iterdir())
        for file in made:
            # protoc writes a bare `Mapping` into its stubs, which mypy --strict refuses.
            head = '# mypy: disable-error-code="type-arg"\n' if file.suffix == ".pyi" else ""
            (target / file.name).write_text(head + file.read_text())
    return [file.name for file in made]


if __name__ == "__main__":
    out = Path(sys.argv[1]) if len(sys.argv) > 1 else SOURCE / "gen"
    names = generate(out)
    for stale in out.glob("*_pb2.py*"):
        if stale.name not in names:
            stale.unlink()
    print("\n".join(names))
