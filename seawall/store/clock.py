"""The node's clock as a worker knows it: an offset to a local clock, measured by asking for TIME.

An answer bounds the offset to ± half its round trip, so of the last few the one with the shortest round trip is
believed. The local clock is a monotonic one: a step of this machine's wall clock must not end the leases of others.
"""

from collections import deque
from typing import NamedTuple

_KEPT = 8
_DRIFT = 0.001
"""Seconds by which two clocks may part between measurements (1 s apart, a few hundred ppm)."""


class Sample(NamedTuple):
    """One measurement: offset of the node's clock to the local one, and the round trip; seconds."""

    offset: float
    trip: float


class Clock:
    """Offset of the node's clock. Starts from a guess; reset when another node may answer."""

    def __init__(self, offset: float):
        self.offset = offset
        self._samples: deque[Sample] = deque(maxlen=_KEPT)

    def reset(self) -> None:
        """Forget measurements; the offset stays until the next one."""
        self._samples.clear()

    def measured(self, sent: float, received: float, node: float) -> None:
        """Take in an answer: local times before and after, and the node's time; seconds."""
        new = Sample(node - (sent + received) / 2, max(0.0, received - sent))
        # Samples that can't be true together with the newest are of a clock that was stepped since: it is gone.
        agreeing = [s for s in self._samples if abs(s.offset - new.offset) <= (s.trip + new.trip) / 2 + _DRIFT]
        self._samples = deque([*agreeing, new], _KEPT)
        self.offset = min(self._samples, key=lambda s: s.trip).offset


def seconds(reply: list[bytes]) -> float:
    """Read the reply to TIME."""
    whole, micro = reply
    return int(whole) + int(micro) / 1e6
