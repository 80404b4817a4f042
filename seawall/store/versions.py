"""Which versions are kept and in force: decided here on what an author saw, written by scripts/change.lua.

Each change of the policy is a function from a View to a Change. It raises Conflict where the author's intent and what is
there don't go together, so every store refuses the same things in the same words.
"""

import zlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

import msgspec

from seawall.policy.canary import Canary
from seawall.store.contract import CanaryShare, Conflict, StoreUnavailable, UnknownVersion

KEPT_VERSIONS = 200
KEPT_BYTES = 64 * 2**20
KEPT_EVENTS = 1000
REPORT_LIFE = 30.0
"""Seconds that a worker's report counts."""
INBOX_MOST = 8 * 2**20
"""Bytes of a document that is taken from the inbox; a policy is smaller (4 MiB), and says so itself."""
_UNPACKED_MOST = 64 * 2**20
_canaries = msgspec.json.Decoder(Canary)


class Pushed(NamedTuple):
    """A document for the store: its text, the SHA-256 of that (hex), the lowest release that understands it."""

    document: str
    digest: str
    needs: str


class Signed(NamedTuple):
    """Who makes a change, why, and when (unix seconds)."""

    author: str
    reason: str
    time: float


@dataclass(frozen=True, slots=True)
class View:
    """What an author saw before writing. `sizes` is by kept version, of compressed documents."""

    current: int | None
    previous: int | None
    last: int
    digest: str
    """Of the current document; "" without one."""
    sizes: Mapping[int, int]
    canary: Canary | None = None


@dataclass(frozen=True, slots=True)
class Change:
    """What shall be: the four pointers, the event that tells of it, and with `packed` a new version to keep.

    `detail` is what the event tells beside version, author and reason. `dropped` are versions that a new one pushes out.
    """

    kind: str
    version: int
    signed: Signed
    current: int | None
    previous: int | None
    last: int
    canary: Canary | None
    detail: str = ""
    packed: bytes = b""
    digest: str = ""
    needs: str = ""
    dropped: tuple[int, ...] = ()


def push(view: View, pushed: Pushed, signed: Signed, *, if_current: int | None, keep_canary: bool = False) -> Change:
    """Keep a document as the next version and make it current. `if_current` 0 means: no version yet."""
    _check_current(view, if_current)
    if view.canary is not None and not keep_canary:
        raise Conflict(f"a canary runs, {told(view.canary)}: promote or abort it first, or keep it", view.current)
    if view.current is not None and view.digest == pushed.digest:
        raise Conflict(f"equals version {view.current}, which is current", view.current)
    version = next_version(view)
    change = _kept(view, "push", version, pushed, signed, keep={view.current})
    return replace(change, current=version, previous=view.current or view.previous)


def rollback(view: View, version: int | None, signed: Signed) -> Change | None:
    """Make a kept version current again, and end a canary: everybody is on it. None where it is current already."""
    target = rollback_target(view, version)
    if target == view.current:
        return None
    detail = f"ended the canary, {told(view.canary)}" if view.canary else ""
    return _pointed(view, "rollback", target, signed, current=target, previous=view.current, detail=detail)


def start_canary(view: View, pushed: Pushed, share: CanaryShare, signed: Signed, *, if_current: int | None) -> Change:
    """Keep a document as the next version and give it to some tenants; in place of a canary that runs."""
    _check_current(view, if_current)
    if view.current is None:
        raise Conflict("there is no current version that a canary could stand beside: push one first", None)
    if view.digest == pushed.digest:
        raise Conflict(f"equals version {view.current}, which is current", view.current)
    if view.canary is not None and view.canary.digest == pushed.digest:
        raise Conflict(f"equals version {view.canary.version}, which is the canary already", view.current)
    version = next_version(view)
    canary = Canary(
        version=version,
        digest=pushed.digest,
        percent=float(share.percent),
        tenants=share.tenants,
        salt=view.canary.salt if view.canary else version,
        base=view.current,
        by=signed.author,
        reason=signed.reason,
        since=signed.time,
    )
    change = _kept(view, "canary", version, pushed, signed, keep={view.current, view.previous})
    return replace(change, canary=canary, detail=share_text(canary))


def move_canary(view: View, share: CanaryShare, signed: Signed) -> Change | None:
    """Give the canary to more tenants, or to fewer. None where nothing changes."""
    canary = _running(view)
    moved = replace(canary, percent=float(share.percent), tenants=share.tenants)
    if moved == canary:
        return None
    detail = f"{share_text(canary)} to {share_text(moved)}"
    return _pointed(view, "canary", canary.version, signed, canary=moved, detail=detail)


def promote(view: View, signed: Signed, *, if_current: int | None) -> Change:
    """Make the canary's version current for all."""
    canary = _running(view)
    _check_current(view, if_current)
    if if_current is None and view.current != canary.base:
        raise Conflict(
            f"version {view.current} was pushed after the canary began beside version {canary.base}; "
            f"promoting version {canary.version} would undo that",
            view.current,
        )
    return _pointed(view, "promote", canary.version, signed, current=canary.version, previous=view.current)


def abort(view: View, signed: Signed) -> Change:
    """End the canary: all tenants are on the current version again."""
    canary = _running(view)
    return _pointed(view, "abort", canary.version, signed, detail=share_text(canary))


def told(canary: Canary) -> str:
    """Name a canary in half a sentence."""
    return f"version {canary.version} for {share_text(canary)}"


def share_text(canary: Canary) -> str:
    """Say whom a canary is for: `10 % of tenants`, `acme and globex`."""
    parts = [f"{canary.percent:g} % of tenants"] if canary.percent or not canary.tenants else []
    if canary.tenants:
        named = ", ".join(canary.tenants[:5])
        parts.append(named + (f" and {len(canary.tenants) - 5} more" if len(canary.tenants) > 5 else ""))
    return " and ".join(parts)


def _check_current(view: View, if_current: int | None) -> None:
    if if_current is not None and (view.current or 0) != if_current:
        found = f"version {view.current}" if view.current else "none yet"
        raise Conflict(f"current is {found}, not version {if_current}", view.current)


def _running(view: View) -> Canary:
    if view.canary is None:
        raise Conflict("no canary runs", view.current)
    return view.canary


def _kept(
    view: View, kind: str, version: int, pushed: Pushed, signed: Signed, *, keep: Collection[int | None]
) -> Change:
    packed = pack(pushed.document)
    canary = {view.canary.version} if view.canary and kind == "push" else set()
    return Change(
        kind,
        version,
        signed,
        current=view.current,
        previous=view.previous,
        last=version,
        canary=view.canary,
        packed=packed,
        digest=pushed.digest,
        needs=pushed.needs,
        dropped=tuple(to_drop(view, len(packed), {*keep, *canary})),
    )


def _pointed(
    view: View,
    kind: str,
    version: int,
    signed: Signed,
    *,
    current: int | None = None,
    previous: int | None = None,
    canary: Canary | None = None,
    detail: str = "",
) -> Change:
    return Change(
        kind,
        version,
        signed,
        current=current or view.current,
        previous=previous or view.previous,
        last=view.last,
        canary=canary,
        detail=detail,
    )


def next_version(view: View) -> int:
    """Give the next number; none is used twice, not even one that was dropped."""
    return max([view.last, view.current or 0, *view.sizes]) + 1


def to_drop(view: View, added: int, keep: Collection[int | None]) -> list[int]:
    """Choose what a new version of `added` bytes pushes out: the oldest, never one of `keep`."""
    count, size = len(view.sizes) + 1, sum(view.sizes.values()) + added
    dropped = []
    for version in sorted(view.sizes):
        if count <= KEPT_VERSIONS and size <= KEPT_BYTES:
            break
        if version not in keep:
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


def canary_text(canary: Canary | None) -> str:
    """Write a canary as the store keeps it; "" for none."""
    return "" if canary is None else msgspec.json.encode(canary).decode()


def read_canary(text: bytes | str | None) -> Canary | None:
    """Read what `canary_text` wrote. Raises StoreUnavailable for anything else."""
    try:
        return _canaries.decode(text) if text else None
    except msgspec.DecodeError:
        raise StoreUnavailable("a canary that can't be read: someone wrote over it") from None


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
