"""Which policy versions are kept, and when a push is refused: decided here, written by scripts/push.lua."""

import zlib
from collections.abc import Mapping
from dataclasses import dataclass

from seawall.store.contract import Conflict, StoreUnavailable, UnknownVersion

KEPT_VERSIONS = 200
KEPT_BYTES = 64 * 2**20
KEPT_EVENTS = 1000
REPORT_LIFE = 30.0
"""Seconds that a worker's report counts."""
INBOX_MOST = 8 * 2**20
"""Bytes of a document that is taken from the inbox; a policy is smaller (4 MiB), and says so itself."""
_UNPACKED_MOST = 64 * 2**20


@dataclass(frozen=True, slots=True)
class View:
    """What an author saw before writing. `sizes` is by kept version, of compressed documents."""

    current: int | None
    previous: int | None
    last: int
    digest: str
    """Of the current document; "" without one."""
    sizes: Mapping[int, int]


def check_push(view: View, digest: str, if_current: int | None) -> None:
    """Raise Conflict when a push may not follow what is current. `if_current` 0 means: no version yet."""
    if if_current is not None and (view.current or 0) != if_current:
        found = f"version {view.current}" if view.current else "none yet"
        raise Conflict(f"current is {found}, not version {if_current}", view.current)
    if view.current is not None and view.digest == digest:
        raise Conflict(f"equals version {view.current}, which is current", view.current)


def next_version(view: View) -> int:
    """Give the next number; none is used twice, not even one that was dropped."""
    return max([view.last, view.current or 0, *view.sizes]) + 1


def to_drop(view: View, added: int) -> list[int]:
    """Choose what a new version of `added` bytes pushes out: the oldest, never the one that becomes previous."""
    count, size = len(view.sizes) + 1, sum(view.sizes.values()) + added
    dropped = []
    for version in sorted(view.sizes):
        if count <= KEPT_VERSIONS and size <= KEPT_BYTES:
            break
        if version != view.current:
            dropped.append(version)
            count -= 1
            size -= view.sizes[version]
    return dropped


def rollback_target(view: View, version: int | None) -> int:
    """Find the version to go back to. Raises UnknownVersion."""
    if version is None:
        if view.previous is None:
            raise UnknownVersion("no version was current before this one")
        version = view.previous
    if version not in view.sizes:
        raise UnknownVersion(f"version {version} is not kept")
    return version


def pack(document: str) -> bytes:
    """Compress a document; bytes that were no UTF-8 (decoded with surrogateescape) survive."""
    return zlib.compress(document.encode("utf-8", "surrogateescape"), 6)


def unpack(version: int, packed: bytes) -> str:
    """Decompress a document. Raises StoreUnavailable for one that was damaged."""
    try:
        unpacker = zlib.decompressobj()
        text = unpacker.decompress(packed, _UNPACKED_MOST)
    except zlib.error:
        raise StoreUnavailable(f"version {version} is damaged") from None
    if not unpacker.eof:
        raise StoreUnavailable(f"version {version} is damaged")
    return text.decode("utf-8", "surrogateescape")
