"""A JSON answer: usage read, the model's name put back, caps kept."""

from seawall.llm.answer import Answer, Plan
from seawall.llm.inflate import Inflater
from seawall.llm.truncate import Meter, cut_answer
from seawall.llm.usage import read_json

MAX_WHOLE = 8 * 1024 * 1024
"""Bytes of a JSON answer that are kept; a larger one passes unread and unchanged."""


class WholeAnswer(Answer):
    """A JSON answer. It is held back until it is whole where something in it may have to change."""

    __slots__ = ("_kept",)

    watched = True

    def __init__(self, plan: Plan, inflater: Inflater | None = None):
        super().__init__(plan, inflater, acts=plan.changes_whole)
        self._kept: bytearray | None = bytearray()

    def piece(self, chunk: bytes) -> bytes:
        """Take the next bytes."""
        if self.ended:
            return b""
        plain = chunk if self._inflater is None else self._inflater.feed(chunk)
        kept = self._kept
        if kept is None:
            return plain if self.recoded else chunk
        kept += plain
        if len(kept) > MAX_WHOLE or (self._inflater is not None and self._inflater.failed):
            self.unread = True
            self._kept = None
            if self.recoded and self._inflater is not None and self._inflater.failed:
                self.ended = True
            return bytes(kept) if self._acts else chunk
        return b"" if self._acts else chunk

    def finish(self) -> bytes:
        """The answer is whole, or was cut: one that can't be read goes on as it came."""
        kept, self._kept = self._kept, None
        if kept is None:
            return b""
        body = bytes(kept)
        reader, plan = self.reader, self._plan
        reader.whole_answer(body)
        if plan.per_choice and plan.choices > 1 and reader.output_tokens is not None:
            # llama.cpp tells one choice's tokens as if they were all.
            reader.output_tokens *= plan.choices
        if not self._acts and reader.output_tokens is not None:
            return b""
        answer = read_json(body)
        if not isinstance(answer, dict):
            return body if self._acts else b""
        if reader.output_tokens is None and plan.endpoint.spoken is not None and not plan.caps.on_text:
            for _, text in plan.endpoint.spoken(answer):
                self._spoken.add(text)
        if not self._acts:
            return b""
        if plan.caps.on_text:
            meter = Meter(plan.caps, plan.choices, self._spoken)
            cut = cut_answer(plan.endpoint, body, answer, meter, reader.output_tokens)
            if cut is not None:
                body, self.truncated = cut, meter.which
        return self._renamed(body) if plan.renamed is not None else body
