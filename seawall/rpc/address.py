"""Addresses that are listened on: `unix:/path` and `host:port`."""

import contextlib
import socket
from pathlib import Path


def bound(address: str) -> socket.socket:
    """Bind an address, a Unix one over a socket that a process left behind; raises OSError that names it."""
    try:
        if address.startswith("unix:"):
            path = address.removeprefix("unix:")
            unlink_socket(path)
            return _bound(socket.AF_UNIX, path)
        host, _, port = address.rpartition(":")
        family, _, _, _, target = socket.getaddrinfo(
            host.strip("[]"), int(port), type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        return _bound(family, target)
    except OSError as e:
        raise OSError(f"can't listen on {address}: {e.strerror or e}") from None


def _bound(family: socket.AddressFamily, target: object) -> socket.socket:
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        if family != socket.AF_UNIX:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(target)  # type: ignore[arg-type]
    except OSError:
        sock.close()
        raise
    return sock


def unlink_socket(path: str) -> None:
    """Remove a socket's file, and nothing but a socket's."""
    with contextlib.suppress(OSError):
        if Path(path).is_socket():
            Path(path).unlink()
