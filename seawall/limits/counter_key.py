"""Names of counters: two kinds, one free of collisions, one that envoyproxy/ratelimit's own keys are.

The limits of a policy count under `identity`: a digest of domain, keys and values with all lengths written out, so two
different descriptors never share a counter, whatever a client puts into a value.

Run as the drop-in, fixed windows count under `text`, which is what envoyproxy/ratelimit writes: dashboards and scripts
that read its keys go on working, and the two can serve side by side from the same counters. Its text has two faults that
can't be mended without changing it: entries (u = `x_ip_1`) and (u = `x`, ip = `1`) give one key, so whoever controls a
value can spend another's budget; and two units whose windows start together (minute and hour at a full hour) share one.
Limits with keys of our own (`algorithm`, `also`, `window`, …) always count under `identity`.
"""

import hashlib
from collections.abc import Sequence
from functools import lru_cache

Entries = Sequence[tuple[str, str]]
_SHORT = 512
"""Characters of entries whose identity is kept."""


def identity(domain: str, entries: Entries) -> bytes:
    """Name the counter of one caller's values: 16 bytes. Lengths are written out: ("a", "b_c") is not ("a_b", "c").

    Number, unit and algorithm of the limit are no part of it: they are fields of the counter (`charge`).
    """
    if type(entries) is tuple and sum(len(key) + len(value) for key, value in entries) <= _SHORT:
        return _known_identity(domain, entries)
    return _identity(domain, entries)


def _identity(domain: str, entries: Entries) -> bytes:
    parts = [domain]
    for key, value in entries:
        parts += (key, value)
    whole = "".join(f"{len(part)}:{part}" for part in parts)
    return hashlib.blake2b(whole.encode("utf-8", "surrogatepass"), digest_size=16).digest()


_known_identity = lru_cache(maxsize=8192)(_identity)
"""The same callers come again and again; what they send is bounded in number and, by `_SHORT`, in size."""


def text(prefix: str, domain: str, entries: Entries, start: int) -> bytes:
    """Key of a fixed window as envoyproxy/ratelimit writes it; `start` in unix seconds, `prefix` CACHE_KEY_PREFIX."""
    named = "".join(f"{key}_{value}_" for key, value in entries)
    return f"{prefix}{domain}_{named}{start}".encode("utf-8", "surrogatepass")
