"""What may be written about an API key, decided on what is kept of it; and its form in the store."""

from dataclasses import replace

import msgspec

from seawall.store.contract import Conflict
from seawall.store.key_contract import KeyRecord

KEPT_EVENTS = 10_000
"""Changes that a worker may be behind; one that is further behind reads all keys."""
_records = msgspec.json.Decoder(KeyRecord)


def check_new(record: KeyRecord, kept: KeyRecord | None) -> None:
    """Raise Conflict when the id of a new key is taken, be it by a revoked one: logs and counts go by the id."""
    if kept is not None:
        state = "revoked" if kept.revoked is not None else f"tenant {kept.tenant}"
        raise Conflict(f"id '{record.id}' is taken ({state})", None)


def taken(owner: str) -> Conflict:
    """Say that the key itself is known under another id."""
    return Conflict(f"this key is kept already, as '{owner}'", None)


def revoked(record: KeyRecord, kept: KeyRecord | None, *, by: str, at: float) -> KeyRecord:
    """Give the record of a key that is revoked now; what is kept where it was revoked before.

    Raises Conflict when the id is kept for another key than `record`'s.
    """
    if kept is not None and kept.sha256 != record.sha256:
        raise Conflict(f"id '{record.id}' is kept for another key", None)
    if kept is not None and kept.revoked is not None:
        return kept
    return replace(kept or record, revoked=at, revoked_by=by)


def lost(record: KeyRecord, kept: KeyRecord | None) -> bool:
    """Whether a store that keeps `kept` has lost what a worker knows of this key."""
    if kept is None:
        return True
    return kept.sha256 == record.sha256 and kept.revoked is None and record.revoked is not None


def restored(record: KeyRecord, kept: KeyRecord | None) -> KeyRecord:
    """Give what to write back: the worker's record, or what is kept with its revocation."""
    return record if kept is None else replace(kept, revoked=record.revoked, revoked_by=record.revoked_by)


def encode(record: KeyRecord) -> bytes:
    """Write a record as the store keeps it."""
    return msgspec.json.encode(record)


def decode(text: bytes) -> KeyRecord | None:
    """Read a record; None for one that another release wrote in another shape, or that someone wrote over."""
    try:
        record = _records.decode(text)
        return record if len(bytes.fromhex(record.sha256)) == 32 else None
    except (msgspec.DecodeError, ValueError):
        return None
