"""The Go peers of bench/peers, built once for each state of their sources, outside the checkout. Go is optional."""

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

PEERS = Path(__file__).resolve().parent / "peers"
BUILD_TIME = 300.0


def version() -> str:
    """The Go that is at hand, "" without one."""
    if shutil.which("go") is None:
        return ""
    said = subprocess.run(["go", "version"], capture_output=True, text=True, check=False).stdout.split()
    return said[2] if len(said) > 2 else ""


def built() -> Path | None:
    """Folder of the binaries where an earlier run has built them; nothing is fetched or built here."""
    folder = _folder()
    return folder if version() and folder.is_dir() else None


def _folder() -> Path:
    sources = sorted(path for path in PEERS.rglob("*") if path.suffix in {".go", ".mod", ".sum"})
    digest = hashlib.sha256(version().encode() + b"".join(path.read_bytes() for path in sources)).hexdigest()[:16]
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "seawall-bench" / digest


def build() -> Path | None:
    """Folder of the binaries of bench/peers; None, and why on stderr, where there can be none."""
    if not version():
        print("no Go here: the tables are without the Go no-op, and the load comes from Python", file=sys.stderr)
        return None
    folder = _folder()
    if folder.is_dir():
        return folder
    print("building the Go peers …", file=sys.stderr)
    new = folder.with_name(f"{folder.name}.{os.getpid()}")
    new.mkdir(parents=True)
    command = ["go", "build", "-mod=readonly", "-buildvcs=false", "-trimpath", "-o", f"{new}/", "./..."]
    try:
        done = subprocess.run(command, cwd=PEERS, capture_output=True, text=True, timeout=BUILD_TIME, check=False)
        failed = done.stderr.strip() if done.returncode else ""
    except subprocess.TimeoutExpired:
        failed = f"not done after {BUILD_TIME:.0f} s"
    if failed:
        shutil.rmtree(new)
        print(f"the Go peers can't be built, so the tables are without them:\n{failed[-2000:]}", file=sys.stderr)
        return None
    try:
        new.rename(folder)
    except OSError:
        # Another run was first.
        shutil.rmtree(new)
    return folder
