"""Who holds the slots of a pool: the executable definition; acquire.lua, release.lua and renew.lua are its twins.

A store can lose holders: it restarts, is flushed, a replica takes over that lagged, or it hangs for so long that leases
end which nobody could renew. Then grants pause until every live worker has said what it holds, or one lease has passed; a
*life* is the time between two such losses.

Times are unix milliseconds; a lease that ends at `now` has ended.
"""

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import NamedTuple


class Asker(NamedTuple):
    """Who asks, and what it knows.

    `node` is the process that has the state, as the asker's connection knows it; `seen` the life that it knew last, ""
    for none; `workers` how many are alive.
    """

    owner: str
    node: str = ""
    seen: str = ""
    workers: int = 1


GRANTED, FULL, ASSERT, PAUSED = 1, 0, -1, -2
"""Outcomes of an acquire. ASSERT: grants are paused and this owner must renew what it holds; PAUSED: it has."""


@dataclass(slots=True)
class _Life:
    id: str
    node: str
    until: int
    """End of the pause; 0 for none."""
    need: int
    fresh: bool
    """Nobody knew of an earlier life."""
    at: int
    """When any worker renewed last."""
    asserted: set[str] = field(default_factory=set)


class Holders:
    """Holders of one pool: rid → (owner, end of the lease)."""

    __slots__ = ("_held", "_life")

    def __init__(self) -> None:
        self._held: dict[str, tuple[str, int]] = {}
        self._life: _Life | None = None

    def acquire(self, rid: str, asker: Asker, limit: int, now: int, expires: int) -> tuple[int, int, str]:
        """Take a slot: outcome, holders, and the life. A live rid is taken over, whatever the limit."""
        life = self._look(asker, now, expires)
        if rid not in self._held:
            if life.until > now:
                return (PAUSED if asker.owner in life.asserted else ASSERT), len(self._held), life.id
            if len(self._held) >= limit:
                return FULL, len(self._held), life.id
        self._held[rid] = (asker.owner, expires)
        return GRANTED, len(self._held), life.id

    def release(self, rid: str, owner: str) -> bool:
        """Give a slot back; False when it is not this owner's (any more)."""
        held = self._held.get(rid)
        if held is None or held[0] != owner:
            return False
        del self._held[rid]
        return True

    def renew(
        self, rids: Collection[str], asker: Asker, now: int, expires: int, asked: Collection[str] = ()
    ) -> tuple[int, int, bool, str]:
        """Prolong all of this owner's slots, adding those that are unknown.

        While grants are paused, what is known of this owner beside `rids` and those that it has `asked` for is dropped:
        it was given back when nobody could be told. Returns the holders after it, how many were unknown, whether grants
        are paused, and the life.
        """
        life, added = self._look(asker, now, expires), 0
        if life.until > now:
            named = {*rids, *asked}
            for rid in [r for r, (owner, _) in self._held.items() if owner == asker.owner and r not in named]:
                del self._held[rid]
        for rid in rids:
            held = self._held.get(rid)
            added += held is None
            if held is None or held[0] == asker.owner:
                self._held[rid] = (asker.owner, expires)
        life.at = now
        if paused := life.until > now:
            life.asserted.add(asker.owner)
            life.need = max(life.need, asker.workers)
            if len(life.asserted) >= life.need:
                life.until, paused = 0, False
        return len(self._held), added, paused, life.id

    def live(self, now: int) -> int:
        """Count the live holders."""
        return sum(expires > now for _, expires in self._held.values())

    def _look(self, asker: Asker, now: int, expires: int) -> _Life:
        ended = [rid for rid, (_, expires_at) in self._held.items() if expires_at <= now]
        for rid in ended:
            del self._held[rid]
        life = self._life
        unseen = life is not None and life.fresh and asker.seen not in {"", life.id}
        # Workers renew three times in a lease: a whole one without any renewal is an absence of the store.
        absent = life is not None and bool(ended) and now - life.at > expires - now
        if life is None or life.node != asker.node or unseen or absent:
            lost = life is not None or asker.seen != ""
            until = expires if lost else 0
            life = self._life = _Life(f"{asker.node}:{now}", asker.node, until, asker.workers, not lost, now)
        return life
