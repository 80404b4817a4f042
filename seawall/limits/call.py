"""One rate limit call in plain values, and what a call may not be."""

from typing import NamedTuple

from seawall.limits.counter_key import Entries
from seawall.limits.window import MOST

MAX_DESCRIPTORS = 64
MAX_ENTRY = 4096
"""Characters of one entry, key and value together."""
MAX_HITS = 2**63 - 1


class InvalidCall(ValueError):
    """A call that can't be decided; the text names what is wrong and what is allowed."""


class Override(NamedTuple):
    """A limit that Envoy sends with a descriptor, instead of the rules'. `unit` is a number of RateLimitUnit."""

    requests: int
    unit: int


class Descriptor(NamedTuple):
    """One descriptor of a call; `hits` None: the request's hits count. `give_back`: they are taken off the counter."""

    entries: Entries
    hits: int | None = None
    override: Override | None = None
    give_back: bool = False


def hits_of(descriptor: Descriptor, request_hits: int) -> int:
    """Hits that a descriptor charges: its own, also 0; else the request's; 0 there means 1 (rls.proto).

    Raises InvalidCall for more than 2^63 - 1; more than 2^53 - 1 counts as that.
    """
    hits = descriptor.hits if descriptor.hits is not None else request_hits or 1
    if hits > MAX_HITS:
        raise InvalidCall(f"hits_addend {hits} is above {MAX_HITS}")
    return min(hits, MOST)


def check_entries(descriptor: Descriptor) -> None:
    """Raise InvalidCall for an entry that is too long to be the name of a counter."""
    for key, value in descriptor.entries:
        if len(key) + len(value) > MAX_ENTRY:
            raise InvalidCall(f"entry '{key[:40]}' is longer than {MAX_ENTRY} characters")
