"""Every key format that Seawall has in Redis. No key name is built anywhere else, and none inside a script.

Keys that one script touches share a hash tag (the part in braces), so that the same scripts work on a Cluster. Two
different things never get the same key: a free part (a pool's name, an identity) stands once, between a fixed head and
a fixed tail, and no tail is the end of another.
"""

POLICY_CURRENT = b"sw:{policy}:current"
"""String: the number of the version that workers should run."""
POLICY_PREVIOUS = b"sw:{policy}:previous"
"""String: the version that was current before; `rollback` without a number goes there."""
POLICY_LAST = b"sw:{policy}:last"
"""String: the highest number ever given to a version; numbers are not used twice."""
POLICY_SIZES = b"sw:{policy}:sizes"
"""Hash: number of each kept version → bytes of its compressed document."""
POLICY_CANARY = b"sw:{policy}:canary"
"""String, JSON: the version that some tenants have, and which tenants; absent without a canary."""
POLICY_EVENTS = b"sw:{policy}:events"
"""Stream, trimmed: one entry for each change of the current version or of the canary."""
POLICY_EPOCH = b"sw:{policy}:epoch"
"""String: written with the first policy; a store without it has lost everything."""

INBOX = b"sw:{policy}:inbox"
"""String: a policy document that someone SET by hand with redis-cli."""
INBOX_ERROR = b"sw:{policy}:inbox:error"
"""Hash `error`, `time`: why the last document from the inbox was refused."""
INBOX_CLAIM = b"sw:{policy}:inbox:claim"
"""String with an expiry: who is working on the inbox."""

API_KEYS = b"sw:{policy}:keys"
"""Hash: id of each API key → its record, JSON. Never the key, only its SHA-256."""
API_KEY_IDS = b"sw:{policy}:keys:ids"
"""Hash: SHA-256 (hex) → id, so that one key has one id."""
API_KEY_EVENTS = b"sw:{policy}:keys:events"
"""Stream, trimmed: one entry for each record written, with the stamp before it."""
API_KEY_STAMP = b"sw:{policy}:keys:stamp"
"""String: id of the newest entry ever made in that stream; who knows the same one knows all keys."""
API_KEY_COUNTS = b"sw:{policy}:keys:counts"
"""Hash: id → requests let through by it."""
API_KEY_LAST = b"sw:{policy}:keys:last"
"""Hash: id → unix seconds of its last use."""

WORKERS = b"sw:{policy}:workers"
"""Hash: worker → its last report, JSON."""
WORKERS_SEEN = b"sw:{policy}:workers:seen"
"""Sorted set: worker → unix seconds of its last report."""


def policy_version(version: int) -> bytes:
    """Hash `document` (compressed), `digest`, `author`, `reason`, `time`, `needs` of a kept version."""
    return b"sw:{policy}:v:%d" % version


def pool_holders(pool: str) -> bytes:
    """Sorted set: rid → end of its lease, unix milliseconds."""
    return b"sw:{p:%b}:holders" % pool.encode("utf-8", "surrogatepass")


def pool_owners(pool: str) -> bytes:
    """Hash: rid → the worker that holds it. Has the same rids as `pool_holders` at any time."""
    return b"sw:{p:%b}:owners" % pool.encode("utf-8", "surrogatepass")


def pool_life(pool: str) -> bytes:
    """Hash: whether the store knows all holders of the pool; scripts/pool.lua tells its fields."""
    return b"sw:{p:%b}:life" % pool.encode("utf-8", "surrogatepass")


def counter(identity: bytes) -> bytes:
    """Hash: start of a window, unix seconds → hits counted in it."""
    return b"sw:{c:%b}" % identity.hex().encode()
