"""What every store can do, whatever holds the state.

Two halves. The *data path* is asked for each request: `charge`, `acquire`, `release`, `renew`; its answers are futures,
so that all calls of one loop tick leave in one write. The *control path* (policy versions, worker reports, the inbox)
is asked a few times a second and is made of coroutines.

A store that can't be asked raises StoreUnavailable; it never answers "unknown" in the shape of a number.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from seawall.limits.charge import Demand, Outcome
from seawall.policy.canary import Canary
from seawall.store.key_contract import KeysPath


class StoreUnavailable(Exception):
    """The store gave no answer: not connected, timed out, breaker open, an error reply.

    The text names the kind ("timed out", "replied OOM"), never a password. Whether a write took effect is not known.
    """


class Charge(NamedTuple):
    """Add `hits` to a fixed window of a counter. `identity` is from `limits.descriptor.counter_identity`."""

    identity: bytes
    start: int
    """Start of the window, unix seconds."""
    length: int
    """Length of the window, seconds."""
    hits: int
    """0 is a look: it writes nothing."""


class Slot(NamedTuple):
    """Answer to an acquire: whether the slot is held, and how many holders the pool has now, this one included.

    `paused`: the store may have lost holders and grants nothing until all live workers have renewed theirs, or a lease
    has passed; `holders` are only those that it knows again.
    """

    granted: bool
    holders: int
    paused: bool = False


class Renewed(NamedTuple):
    """Answer to a renewal: holders of the pool after it, how many of the rids the store did not know, and `paused`."""

    holders: int
    added: int = 0
    paused: bool = False


@dataclass(frozen=True, slots=True)
class VersionInfo:
    """One kept version of the policy. `time` is unix seconds, `needs` the lowest release that understands it."""

    version: int
    digest: str
    author: str
    reason: str
    time: float
    needs: str
    current: bool = False
    canary: bool = False


class CanaryShare(NamedTuple):
    """Whom a canary is for: a percentage of the tenants, and some by name."""

    percent: float
    tenants: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PolicyEvent:
    """One change of the policy: `kind` is push, rollback, canary, promote or abort; `time` unix seconds."""

    time: float
    kind: str
    version: int
    author: str
    reason: str
    detail: str


class Conflict(Exception):
    """The current version is not the one that the author started from, or holds the same document."""

    def __init__(self, message: str, current: int | None):
        super().__init__(message)
        self.current = current


class UnknownVersion(Exception):
    """A version that is not kept (any more)."""


@dataclass(frozen=True, slots=True)
class WorkerReport:
    """What a worker says of itself once a second.

    `checked` is the unix time of its last successful look at the store's current version; `error` is why it stays on
    `version` although another is current ("" when it does not).
    """

    worker: str
    pid: int
    host: str
    version: int
    checked: float
    error: str
    release: str
    canary: int = 0
    """Version that it runs as the canary; 0 for none."""
    keys: int = 0
    """API keys of the store that it knows."""
    keys_stamp: str = ""


class Standing(NamedTuple):
    """Reply to a report: the current version (None: no policy yet), and how many workers reported lately."""

    current: int | None
    workers: int
    digest: str = ""
    """Of the current document: a store that lost its data counts versions from 1 again."""
    canary: Canary | None = None
    keys_stamp: str = ""
    """What `KeysPath.key_stamp` says."""


class DataPath(Protocol):
    """Asked for each request."""

    def charge(self, charges: Sequence[Charge]) -> Awaitable[Sequence[int]]:
        """Add the hits of one call in one step; the counters after it, in order. Charged in full even when over.

        On a cluster it is one step for each slot: where one fails the call fails, and what the others counted stays.

        A counter that stands twice counts twice, each answer after its own hits. A window is counted by its start: a
        late one (a clock that went back) never resets a newer one. Counts stop at 2^53 - 1.
        """

    def charge_all(self, demands: Sequence[Demand], *, stop: bool = False) -> Awaitable[Sequence[Outcome]]:
        """Decide one call's demands in one step, each seeing what those before it charged: `limits.charge`."""

    def acquire(self, pool: str, rid: str, limit: int, lease: float) -> Awaitable[Slot]:
        """Take a slot of a pool under `limit` holders for `lease` seconds. A live rid is taken over, never added.

        Whoever stops waiting for the answer calls `release`: the slot may have been granted.
        """

    def release(self, pool: str, rid: str) -> None:
        """Give a slot back, at most once for each rid and owner; without an answer: the lease covers a loss."""

    def renew(self, pool: str, rids: Sequence[str], lease: float, asked: Sequence[str] = ()) -> Awaitable[Renewed]:
        """Prolong holders: all that this worker has of the pool, also when it has none.

        An upsert, so that a store that lost them knows them again. A rid that lives under another owner was taken over
        and stays there. `asked` are those whose acquire is not answered yet: a store that pauses its grants drops what
        it has of this worker beside both.
        """

    def when_lost(self, told: Callable[[], None]) -> None:
        """Call `told` whenever the store may have lost holders of this worker, or another connection leads to it.

        It is answered by renewing all pools; called from the event loop, and must not raise.
        """

    def now(self) -> float:
        """The store's clock in unix seconds: all workers count windows and leases by it."""

    @property
    def healthy(self) -> bool:
        """False while the store can't be asked; a look, no I/O."""

    @property
    def trouble(self) -> str:
        """Why the store is not healthy, without secrets; "" while it is."""


class ControlPath(Protocol):
    """Asked a few times a second."""

    async def push(
        self,
        document: str,
        *,
        digest: str,
        author: str,
        reason: str,
        needs: str,
        if_current: int | None = None,
        keep_canary: bool = False,
    ) -> int:
        """Keep a document as the next version and make it current.

        Raises Conflict when `if_current` is given and is not current (0: there is none yet), when the current document
        has this digest, or when a canary runs, unless it is to be kept.
        """

    async def current(self) -> int | None:
        """Version that workers should run, or None."""

    async def current_digest(self) -> tuple[int | None, str]:
        """Current version and the digest of its document; (None, "") without one."""

    async def document(self, version: int) -> tuple[str, VersionInfo]:
        """Text of a kept version as it was pushed, and what is known of it. Raises UnknownVersion."""

    async def history(self, count: int = 20) -> Sequence[VersionInfo]:
        """Kept versions, newest first."""

    async def rollback(self, version: int | None, *, author: str, reason: str) -> int:
        """Make a kept version current again (None: the one that was current before). Returns it.

        Raises UnknownVersion. Going back to the version that is current changes nothing; else a canary is ended.
        """

    async def canary(self) -> Canary | None:
        """Look at the canary that runs."""

    async def start_canary(
        self,
        document: str,
        *,
        share: CanaryShare,
        digest: str,
        author: str,
        reason: str,
        needs: str,
        if_current: int | None = None,
    ) -> Canary:
        """Keep a document as the next version and give it to some tenants, in place of a canary that runs.

        One in place of another keeps its tenants. Raises Conflict as `push` does, and without a current version.
        """

    async def move_canary(self, share: CanaryShare, *, author: str, reason: str) -> Canary:
        """Give the canary to more tenants or to fewer. Raises Conflict when none runs."""

    async def promote_canary(self, *, author: str, reason: str, if_current: int | None = None) -> int:
        """Make the canary's version current for all; its number.

        Raises Conflict when none runs, or when another version became current since it began, unless that is named by
        `if_current`.
        """

    async def abort_canary(self, *, author: str, reason: str) -> Canary:
        """End the canary; all tenants are on the current version again. Raises Conflict when none runs."""

    async def events(self, count: int = 20) -> Sequence[PolicyEvent]:
        """Read the last changes of the policy, newest first."""

    async def wait_change(self, timeout: float) -> None:
        """Return when the current version, the canary or an API key may have changed, or after `timeout` seconds."""

    async def report(self, report: WorkerReport) -> Standing:
        """Leave a worker's report, get the standing."""

    async def workers(self) -> Sequence[WorkerReport]:
        """Reports not older than 30 s."""

    async def forget_worker(self, worker: str) -> None:
        """Drop the report of a worker that ended on purpose."""

    async def claim_inbox(self, claimant: str, lease: float) -> str | None:
        """Take the lease on a document that someone SET into the inbox by hand; its text, or None."""

    async def settle_inbox(
        self, claimant: str, document: str, error: str | None, push: Mapping[str, str] | None
    ) -> int | None:
        """End a claim in one step: write the new version (`push`: digest, author, reason, needs) or the error.

        Either way the inbox is emptied. A document that equals the current one leaves an error that says so. Nothing is
        done when the inbox holds another text by now, or the lease went to someone else. Returns the new version, or
        None when none was written.
        """

    async def inbox_error(self) -> tuple[str, float] | None:
        """Why the last document from the inbox was refused, and when (unix seconds); None after one that was taken."""

    async def holders(self, pool: str) -> int:
        """Live holders of a pool."""


class Lifetime(Protocol):
    """Connections have a beginning and an end."""

    async def start(self) -> None:
        """Connect. Does not raise when the store is away: `healthy` says so, and it keeps trying."""

    async def close(self) -> None:
        """Close connections."""


class Control(ControlPath, KeysPath, Lifetime, Protocol):
    """The control path alone, as commands use it."""


class Store(DataPath, ControlPath, KeysPath, Lifetime, Protocol):
    """The whole contract."""
