"""Draw which package imports which, from the import statements as they are: `make map`.

Rooms in layers, top first; under each room what it imports, with the number of import statements.
"""

import sys
from collections import Counter
from pathlib import Path

import grimp

ROOTS = ("seawall", "ext_authz", "ratelimit", "ext_proc")
ROOT = Path(__file__).resolve().parent.parent


def room(module: str) -> str:
    """`seawall.llm.sse` lives in `seawall.llm`; a service is one room."""
    parts = module.split(".")
    return ".".join(parts[:2]) if parts[0] == "seawall" and len(parts) > 1 else parts[0]


def main() -> int:
    """Print the map."""
    sys.path.insert(0, str(ROOT))
    graph = grimp.build_graph(*ROOTS)
    uses: dict[str, Counter[str]] = {}
    lines: Counter[str] = Counter()
    for module in sorted(graph.modules):
        here = room(module)
        uses.setdefault(here, Counter())
        path = ROOT / Path(*module.split("."))
        file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
        if ".gen." not in f"{module}.":
            lines[here] += sum(1 for _ in file.open(encoding="utf-8"))
        for imported in graph.find_modules_directly_imported_by(module):
            if (there := room(imported)) != here:
                uses[here][there] += 1
    for here in ordered(uses):
        print(f"{here}  ({lines[here]} lines)")
        for there, count in sorted(uses[here].items()):
            print(f"    -> {there}  {count}")
    return 0


def ordered(uses: dict[str, "Counter[str]"]) -> list[str]:
    """Whoever is imported comes after all that import it; rooms in a cycle would never come, and are put last."""
    left = {here: set(there) for here, there in uses.items()}
    result: list[str] = []
    while left:
        top = sorted(here for here in left if not any(here in there for other, there in left.items() if other != here))
        result += top or sorted(left)
        for here in top or list(left):
            del left[here]
    return result


if __name__ == "__main__":
    sys.exit(main())
