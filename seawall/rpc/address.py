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


def socket_inode(path: str) -> int | None:
    """Tell one socket's file from another that took its name; None for no socket."""
    try:
        return Path(path).stat().st_ino if Path(path).is_socket() else None
    except OSError:
        return None


def unlink_socket(path: str, inode: int | None = None) -> None:
    """Remove a socket's file, and nothing but a socket's; with `inode` only that one: a successor's name stays."""
    with contextlib.suppress(OSError):
        found = socket_inode(path)
        if found is not None and inode in {None, found}:
            Path(path).unlink()
