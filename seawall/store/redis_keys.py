"""API keys on Redis: one hash of records, one stream of what was written, counts beside them."""

from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import TypeVar

from seawall.store import key_records, keys
from seawall.store.contract import StoreUnavailable
from seawall.store.key_contract import KeyChanges, KeyRecord, KeyUse, UnknownKey
from seawall.store.redis_asking import RACES, Asking

T = TypeVar("T")

_AT_ONCE = 1000
"""Records that are read or written in one step: a few milliseconds of the node and of the loop."""
_SCRIPT_KEYS = [keys.API_KEYS, keys.API_KEY_IDS, keys.API_KEY_EVENTS, keys.API_KEY_STAMP]


class RedisKeys(Asking):
    """Part of the control path; see KeysPath for what each does."""

    async def add_key(self, record: KeyRecord) -> None:
        """See KeysPath."""
        for _ in range(RACES):
            key_records.check_new(record, await self._kept(record.id))
            if await self._write_key(record, b""):
                return
        raise StoreUnavailable("too many authors at once")

    async def revoke_key(self, record: KeyRecord, *, by: str, at: float) -> KeyRecord:
        """See KeysPath."""
        for _ in range(RACES):
            text = await self._text_of(record.id)
            kept = key_records.decode(text) if text else None
            revoked = key_records.revoked(record, kept, by=by, at=at)
            if revoked is kept or await self._write_key(revoked, text):
                return revoked
        raise StoreUnavailable("too many authors at once")

    async def key(self, id_: str) -> KeyRecord:
        """See KeysPath."""
        kept = await self._kept(id_)
        if kept is None:
            raise UnknownKey(f"no key '{id_}' is kept")
        return kept

    async def all_keys(self) -> AsyncIterator[Sequence[KeyRecord]]:
        """See KeysPath."""
        cursor, found = await self._scan(0)
        while True:
            if found:
                yield [record for text in found.values() if (record := key_records.decode(text)) is not None]
            if not cursor:
                return
            cursor, found = await self._scan(cursor)

    async def _scan(self, cursor: int) -> tuple[int, Mapping[bytes, bytes]]:
        """Read some records. The node finds all that are there from the first call to the last, some of them twice."""
        reply = await self._ask(lambda: self._client.hscan(keys.API_KEYS, cursor, count=_AT_ONCE))
        return int(reply[0]), reply[1]

    async def key_count(self) -> int:
        """See KeysPath."""
        return int(await self._ask(lambda: self._client.hlen(keys.API_KEYS)))

    async def key_stamp(self) -> str:
        """See KeysPath."""
        return ((await self._ask(lambda: self._client.get(keys.API_KEY_STAMP))) or b"").decode()

    async def key_changes(self, since: str) -> KeyChanges | None:
        """See KeysPath."""
        found = await self._ask(
            lambda: self._client.xrange(keys.API_KEY_EVENTS, min=f"({since}" if since else "-", count=_AT_ONCE)
        )
        if not found or found[0][1].get(b"before", b"").decode() != since:
            # Nothing after it although it is not the newest: the store has lost something. Or a part was trimmed.
            return None
        records = [record for _, entry in found if (record := key_records.decode(entry[b"record"])) is not None]
        return KeyChanges(records, found[-1][0].decode())

    async def restore_keys(self, records: Sequence[KeyRecord]) -> int:
        """See KeysPath."""
        written = 0
        for some in _batches(records):
            texts = await self._texts_of([record.id for record in some])
            values: list[str | bytes | int] = [key_records.KEPT_EVENTS]
            for record, text in zip(some, texts, strict=True):
                kept = key_records.decode(text) if text else None
                if key_records.lost(record, kept):
                    values += [record.id, text or b"", key_records.encode(key_records.restored(record, kept))]
                    values.append(record.sha256)
            if len(values) > 1:
                written += sum(done == 1 for done in await self._run("write_keys", _SCRIPT_KEYS, values))
        return written

    async def add_key_uses(self, counts: Mapping[str, int], at: float) -> None:
        """See KeysPath."""
        for some in _batches(counts.items()):
            pipeline = self._client.pipeline(transaction=True)
            for id_, count in some:
                pipeline.hincrby(keys.API_KEY_COUNTS, id_, count)
            pipeline.hset(keys.API_KEY_LAST, mapping={id_: f"{at:.0f}" for id_, _ in some})
            await self._ask(pipeline.execute)

    async def key_uses(self) -> Mapping[str, KeyUse]:
        """See KeysPath."""
        counts = await self._ask(lambda: self._client.hgetall(keys.API_KEY_COUNTS))
        last = await self._ask(lambda: self._client.hgetall(keys.API_KEY_LAST))
        return {
            id_.decode("utf-8", "replace"): KeyUse(int(count), float(last.get(id_, 0))) for id_, count in counts.items()
        }

    async def _kept(self, id_: str) -> KeyRecord | None:
        text = await self._text_of(id_)
        return key_records.decode(text) if text else None

    async def _texts_of(self, ids: list[str]) -> Sequence[bytes | None]:
        texts: Sequence[bytes | None] = await self._ask(lambda: self._client.hmget(keys.API_KEYS, ids))
        return texts

    async def _text_of(self, id_: str) -> bytes:
        text: bytes | None = await self._ask(lambda: self._client.hget(keys.API_KEYS, id_))
        return text or b""

    async def _write_key(self, record: KeyRecord, seen: bytes) -> bool:
        """Write one record; False when it changed since it was seen. Raises Conflict for a key with another id."""
        values = [key_records.KEPT_EVENTS, record.id, seen, key_records.encode(record), record.sha256]
        done = (await self._run("write_keys", _SCRIPT_KEYS, values))[0]
        if done == -1:
            owner = await self._ask(lambda: self._client.hget(keys.API_KEY_IDS, record.sha256))
            raise key_records.taken((owner or b"another").decode("utf-8", "replace"))
        return bool(done)


def _batches(items: Iterable[T]) -> Iterator[tuple[T, ...]]:
    """Cut into pieces of a bounded size (itertools.batched comes with Python 3.12)."""
    rest = iter(items)
    while some := tuple(islice(rest, _AT_ONCE)):
        yield some
