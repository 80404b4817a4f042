"""Who holds the slots of a pool: the executable definition; acquire.lua, release.lua and renew.lua are its twins.

Times are unix milliseconds; a lease that ends at `now` has ended.
"""

from collections.abc import Iterable


class Holders:
    """Holders of one pool: rid → (owner, end of the lease)."""

    __slots__ = ("_held",)

    def __init__(self) -> None:
        self._held: dict[str, tuple[str, int]] = {}

    def acquire(self, rid: str, owner: str, limit: int, now: int, expires: int) -> tuple[bool, int]:
        """Take a slot: whether it is held now, and the holders. A live rid is taken over, whatever the limit."""
        self._drop(now)
        if rid not in self._held and len(self._held) >= limit:
            return False, len(self._held)
        self._held[rid] = (owner, expires)
        return True, len(self._held)

    def release(self, rid: str, owner: str) -> bool:
        """Give a slot back; False when it is not this owner's (any more)."""
        held = self._held.get(rid)
        if held is None or held[0] != owner:
            return False
        del self._held[rid]
        return True

    def renew(self, rids: Iterable[str], owner: str, now: int, expires: int) -> int:
        """Prolong this owner's slots, adding those that are unknown; the holders after it."""
        self._drop(now)
        for rid in rids:
            held = self._held.get(rid)
            if held is None or held[0] == owner:
                self._held[rid] = (owner, expires)
        return len(self._held)

    def live(self, now: int) -> int:
        """Count the live holders."""
        return sum(expires > now for _, expires in self._held.values())

    def _drop(self, now: int) -> None:
        for rid in [rid for rid, (_, expires) in self._held.items() if expires <= now]:
            del self._held[rid]
