"""The name of a request: 64 random bits that no client can guess or choose."""

import os

RID = 8
"""Bytes of a rid; it is written in hexadecimal."""
_BLOCK = 512


class Rids:
    """Gives rids out. The system is asked for many at once: a system call for each would cost more than the rid."""

    def __init__(self) -> None:
        self._left: list[str] = []

    def next(self) -> str:
        """16 hexadecimal digits, each time others."""
        if not self._left:
            digits = os.urandom(RID * _BLOCK).hex()
            self._left = [digits[at : at + 2 * RID] for at in range(0, len(digits), 2 * RID)]
        return self._left.pop()
