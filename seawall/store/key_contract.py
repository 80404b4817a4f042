"""API keys that come and go without a push: kept in the store, followed by every worker.

A record is never deleted. A revoked key stays as a record that says so: revocation is final and wins over everything,
also over a policy that lists the same key.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol


@dataclass(frozen=True, slots=True)
class KeyRecord:
    """One API key, known by the SHA-256 (hex) of it. Times are unix seconds; None: never.

    `tenant` is "" where the revoked key is one of a policy: the policy says whose it was.
    """

    id: str
    tenant: str
    sha256: str
    created: float
    by: str
    reason: str = ""
    expires: float | None = None
    revoked: float | None = None
    revoked_by: str = ""


class KeyUse(NamedTuple):
    """How often a key was let through, and when last (unix seconds)."""

    uses: int
    last: float


class KeyChanges(NamedTuple):
    """Records written since a stamp, in order, and the stamp after them."""

    records: Sequence[KeyRecord]
    stamp: str


class UnknownKey(Exception):
    """No key is kept under this id."""


class KeysPath(Protocol):
    """Asked by commands, and by workers when the stamp has changed."""

    async def add_key(self, record: KeyRecord) -> None:
        """Keep a new key. Raises Conflict when its id is taken, or the key itself is known under another id."""

    async def revoke_key(self, record: KeyRecord, *, by: str, at: float) -> KeyRecord:
        """Revoke a key for good; `record` is the key as it was read, or a new one (a key of a policy).

        A key that is revoked already stays as it is. Returns what is kept now. Raises Conflict when the id is another
        key's.
        """

    async def key(self, id_: str) -> KeyRecord:
        """Read one record. Raises UnknownKey."""

    def all_keys(self) -> AsyncIterator[Sequence[KeyRecord]]:
        """Read all records, some at a time; what is written meanwhile may be missing."""

    async def key_count(self) -> int:
        """Count the records, revoked ones included."""

    async def key_stamp(self) -> str:
        """Say what was written last; "" where nothing ever was."""

    async def key_changes(self, since: str) -> KeyChanges | None:
        """Read what was written since a stamp; None when that can't be told any more: read all."""

    async def restore_keys(self, records: Sequence[KeyRecord]) -> int:
        """Write back what a store lost: each record that is absent, or not revoked there and revoked here; how many."""

    async def add_key_uses(self, counts: Mapping[str, int], at: float) -> None:
        """Add to the counts of keys by id, all last used at `at`."""

    async def key_uses(self) -> Mapping[str, KeyUse]:
        """Read how often each key was used, by id."""
