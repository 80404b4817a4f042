"""Where the supervisor is that a command means: the directory of its workers' sockets."""

import os

from seawall.cli.running import find
from seawall.serve.settings import Settings


def socket_dir(given: str | None) -> str:
    """--socket-dir, SEAWALL_SOCKET_DIR, the directory of the running `seawall up`, or the default."""
    if named := given or os.environ.get("SEAWALL_SOCKET_DIR"):
        return named
    running = find()
    return str(running.told["socket_dir"]) if running is not None else Settings().socket_dir
