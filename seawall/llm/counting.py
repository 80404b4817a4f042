"""Our own count of tokens where the engine tells none, from the text that went by.

No tokenizer is at hand, so two numbers are kept apart. `likely` is for accounts: a token has 4 bytes of UTF-8 on average
(English 4 to 5, code 3 to 4, Chinese 3 to 5), and each piece of a stream holds one at least; the error is about a third.
`pieces` and `most` are for caps: no piece is less than a token, and no usual text has more than 16 bytes a token, so that
a cap by them never cuts what it allows.
"""

from typing import NamedTuple


class Measure(NamedTuple):
    """Bytes of UTF-8 that a token has: on average, and at the most."""

    usual: float = 4.0
    most: float = 16.0


USUAL = Measure()


class Spoken:
    """Generated text of one answer: `pieces` with text in them, and their `size` in bytes of UTF-8."""

    __slots__ = ("_measure", "pieces", "size")

    def __init__(self, measure: Measure = USUAL) -> None:
        self._measure = measure
        self.pieces = 0
        self.size = 0

    def add(self, text: str) -> None:
        """A piece of generated text, not empty."""
        self.pieces += 1
        self.size += size_of(text)

    @property
    def likely(self) -> int:
        """About how many tokens that was."""
        return max(self.pieces, -int(-self.size // self._measure.usual))

    def most(self, tokens: int) -> int:
        """Bytes that so many tokens can't exceed."""
        return int(tokens * self._measure.most)


def size_of(text: str) -> int:
    """Bytes of UTF-8 of a text; half of a surrogate pair counts as 3."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))
