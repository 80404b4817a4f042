"""Ports of this machine for a gate that starts."""

import re
import socket

from seawall.cli.failure import Failure

LOOPBACK = "127.0.0.1"


class PortLost(Failure):
    """A child could not have its port: another program took it between our look and the child's."""


def is_port_lost(words: str) -> bool:
    """Say whether the last words of a child of ours, or of Valkey or Envoy, mean that its port was taken."""
    return re.search(r"\bin use\b|Failed listening on port", words) is not None


def taken(host: str, port: int) -> None:
    """Raise Failure when a port can't be listened on."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as e:
            raise Failure(f"port {port} on {host} can't be used: {e.strerror}; choose another with --port") from None


def free_port(preferred: int, avoid: set[int] | None = None) -> int:
    """Give the preferred port where it is free, else any free one."""
    for port in (preferred, 0, 0, 0):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((LOOPBACK, port))
            except OSError:
                continue
            found = int(probe.getsockname()[1])
            if found not in (avoid or set()):
                return found
    raise Failure("no free port on 127.0.0.1")
