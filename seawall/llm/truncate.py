"""Caps on one answer, and where exactly they cut it.

A cap never cuts what it allows. Tokens are those that the engine tells; where it tells none while it streams, the
smallest number that the text can be (`counting`). With `n` choices all of them together may have n times the cap: their
texts interleave, and a slow one must not be cut because of a fast one.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from seawall.llm.counting import Spoken, size_of
from seawall.llm.protocols.contract import Delta, End, Endpoint, Json
from seawall.llm.spans import Path, changed, encoded, locate, spliced, text_spliced


class Cap(StrEnum):
    """Which cap cut an answer."""

    TOKENS = "tokens"
    BYTES = "bytes"
    TIME = "time"


@dataclass(frozen=True, slots=True)
class Caps:
    """Most `tokens` of a choice, `size` of all generated text in bytes of UTF-8, `seconds` of a stream; None is no cap."""

    tokens: int | None = None
    size: int | None = None
    seconds: float | None = None

    @property
    def on_text(self) -> bool:
        """Whether text must be looked at to keep them."""
        return self.tokens is not None or self.size is not None


NO_CAPS = Caps()


def caps_of(tokens: int | None, size: int | None, seconds: float | None) -> Caps:
    """Caps, NO_CAPS where there is none."""
    return NO_CAPS if tokens is None and size is None and seconds is None else Caps(tokens, size, seconds)


class Meter:
    """Holds what of a stream has gone to the client against its caps."""

    __slots__ = ("_size", "_tokens", "spoken", "told", "which")

    def __init__(self, caps: Caps, choices: int, spoken: Spoken):
        self._tokens = None if caps.tokens is None else caps.tokens * max(choices, 1)
        self._size = caps.size
        self.spoken = spoken
        self.told: int | None = None
        """Output tokens of what has gone to the client, as the engine tells while it streams."""
        self.which: Cap | None = None
        """The cap that is exceeded."""

    def counted(self, tokens: int) -> int:
        """Tokens that have gone to the client, where so many are told or estimated."""
        if self.told is not None:
            return self.told
        return tokens if self._tokens is None else min(tokens, self._tokens)

    def take_plain(self, size: int, told: int | None) -> bool:
        """Take an event with one text of so many bytes, or none, if that is surely within the caps."""
        if told is not None:
            if self._tokens is not None and told > self._tokens:
                return False
        elif (
            self._tokens is not None
            and self.told is None
            and (self.spoken.pieces >= self._tokens or self.spoken.size + size > self.spoken.most(self._tokens))
        ):
            return False
        if self._size is not None and self.spoken.size + size > self._size:
            return False
        if told is not None:
            self.told = told
        if size:
            self.spoken.pieces += 1
            self.spoken.size += size
        return True

    def take(self, deltas: Sequence[Delta], told: int | None) -> dict[Path, int] | None:
        """Take an event: None if it may go whole, else how many characters of each of its texts may.

        `told` are the output tokens up to and with this event, None where the engine doesn't say.
        """
        if not deltas:
            self.told = told if told is not None else self.told
            return None
        share, left = 1.0, None
        size = sum(size_of(delta.text) for delta in deltas)
        if self._tokens is not None and told is not None:
            before = min(self.told or 0, self._tokens)
            if told > self._tokens:
                share, self.which = (self._tokens - before) / (told - before), Cap.TOKENS
                told = self._tokens
            self.told = told
        elif self._tokens is not None and self.told is None:
            left = self.spoken.most(self._tokens) - self.spoken.size
            if self.spoken.pieces + len(deltas) > self._tokens:
                left = 0
            self.which = Cap.TOKENS if size > left else None
        if self._size is not None and size > self._size - self.spoken.size:
            room = self._size - self.spoken.size
            if left is None or room < left:
                left = room
            self.which = self.which or Cap.BYTES
        if self.which is None:
            for delta in deltas:
                self.spoken.add(delta.text)
            return None
        return self._kept(deltas, share, left)

    def _kept(self, deltas: Sequence[Delta], share: float, left: int | None) -> dict[Path, int]:
        kept = {}
        for delta in deltas:
            count = int(len(delta.text) * share)
            if left is not None:
                count = fitting(delta.text, count, left)
                left -= size_of(delta.text[:count])
            kept[delta.path] = count
            if count:
                self.spoken.add(delta.text[:count])
        return kept


def fitting(text: str, count: int, size: int) -> int:
    """Largest number of characters, at most `count`, that take no more than `size` bytes of UTF-8."""
    text = text[: max(0, min(count, size))]
    if text.isascii():
        return len(text)
    return len(text.encode("utf-8", "surrogatepass")[:size].decode("utf-8", "ignore"))


def shortened(data: bytes, kept: Mapping[Path, int], others: Mapping[Path, Any]) -> bytes:
    """Write an event or an answer with texts cut after so many characters, and other values set."""
    edits = []
    for path, count in kept.items():
        span = locate(data, path)
        if span is not None:
            token = data[span[0] : span[1]]
            edits.append((*span, text_spliced(token, [(count, len(token), "")])))
    return changed(spliced(data, edits), {path: encoded(value) for path, value in others.items()})


def cut_answer(
    endpoint: Endpoint, body: bytes, answer: Json, meter: Meter, told: int | None, why: End = End.LENGTH
) -> bytes | None:
    """Cut a whole answer to the caps of a meter; None where it is within them.

    `told` are its output tokens as the engine says. Of an answer with too many, the same share of text stays as of
    tokens. Usage in the body stays as it is: the engine has generated so many.
    """
    if endpoint.spoken is None or endpoint.ended is None:
        return None
    texts = endpoint.spoken(answer)
    whole = [Delta("", path, text) for path, text in texts]
    # A whole answer is one piece, not as many as it has texts.
    kept = meter.take([Delta("", (), "".join(text for _, text in texts))], told)
    if kept is None:
        return None
    left = kept[()]
    counts = {}
    for delta in whole:
        count = min(len(delta.text), left)
        left -= count
        if count < len(delta.text):
            counts[delta.path] = count
    return shortened(body, counts, endpoint.ended(answer, list(counts), why))
