"""API keys of the store in one worker: followed by their changes, and counted as they are used."""

import sys
import time
from collections.abc import Iterable

from seawall.caller.keys import IssuedKey
from seawall.store.contract import StoreUnavailable
from seawall.store.key_contract import KeyRecord, KeysPath


class KeyRing:
    """Holds keys by digest, and how often each id was let through since the last flush.

    Ids are counted only once they were found in the policy or among the keys, so the counts are bounded by those.
    """

    def __init__(self, store: KeysPath, by: str):
        self._store = store
        self._by = by
        self.issued: dict[bytes, IssuedKey] = {}
        self.stamp = ""
        self._uses: dict[str, int] = {}

    def used(self, id_: str) -> None:
        """Count one request let through."""
        self._uses[id_] = self._uses.get(id_, 0) + 1

    async def follow(self, stamp: str) -> bool:
        """Read what changed until `stamp` (of the store's standing); whether anything did. Raises StoreUnavailable."""
        if stamp == self.stamp:
            return False
        while self.stamp != stamp:
            changes = await self._store.key_changes(self.stamp) if self.stamp else None
            if changes is None:
                await self._read_all()
                break
            self._take(changes.records)
            self.stamp = changes.stamp
            # What was written after `stamp` may have come with it.
            stamp = await self._store.key_stamp()
        return True

    async def _read_all(self) -> None:
        """Read all keys. What we know and the store does not was lost by it, and is written back.

        So a store that lost its data, or a replica that lacked the last writes, takes no key away and gives no revoked
        one back.
        """
        before, stamp = self.issued, await self._store.key_stamp()
        fresh: dict[bytes, IssuedKey] = {}
        async for some in self._store.all_keys():
            fresh.update(map(_issued, some))
        lost = {digest: key for digest, key in before.items() if _lost(key, fresh.get(digest))}
        self.issued, self.stamp = {**fresh, **lost}, stamp
        if lost:
            await self._store.restore_keys([_record(digest, key, self._by) for digest, key in lost.items()])

    def _take(self, records: Iterable[KeyRecord]) -> None:
        self.issued.update(map(_issued, records))

    async def flush(self) -> None:
        """Add the counts to those in the store. Raises StoreUnavailable; they are tried again then.

        A flush whose answer was lost may count twice: a use too many says less wrong than a key that seems unused.
        """
        if not self._uses:
            return
        uses, self._uses = self._uses, {}
        try:
            await self._store.add_key_uses(uses, time.time())
        except StoreUnavailable:
            for id_, count in uses.items():
                self._uses[id_] = self._uses.get(id_, 0) + count
            raise


def _issued(record: KeyRecord) -> tuple[bytes, IssuedKey]:
    # One string for each tenant, not one for each key.
    return bytes.fromhex(record.sha256), IssuedKey(record.id, sys.intern(record.tenant), record.expires, record.revoked)


def _lost(key: IssuedKey, there: IssuedKey | None) -> bool:
    return there is None or (key.revoked is not None and there.revoked is None)


def _record(digest: bytes, key: IssuedKey, by: str) -> KeyRecord:
    return KeyRecord(
        id=key.id,
        tenant=key.tenant,
        sha256=digest.hex(),
        created=0.0,
        by=by,
        reason="written back by a worker: the store had lost it",
        expires=key.expires,
        revoked=key.revoked,
        revoked_by=by if key.revoked is not None else "",
    )
