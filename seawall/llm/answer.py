"""One answer on its way to the client: bytes in, bytes out, and what was learnt.

Where nothing has to change, the bytes are those that came. Where something has, every event and member that no rule is
about still is. A stream is held back by no more than its unfinished event, a JSON answer until it is whole.
"""

from dataclasses import dataclass
from typing import ClassVar

from seawall.llm.counting import USUAL, Measure, Spoken
from seawall.llm.inflate import Inflater
from seawall.llm.protocols.contract import Endpoint, Origin
from seawall.llm.spans import encoded, locate, spliced
from seawall.llm.truncate import NO_CAPS, Cap, Caps
from seawall.llm.usage import Usage, UsageReader


@dataclass(frozen=True, slots=True)
class Plan:
    """What is done with an answer.

    `origin` is what it calls itself where we have to speak before the engine has; its model is the one that the client
    asked for. `renamed`: the engine knows the model by this name, and the client must not see it. `choices` is the
    client's `n`. `asked`: the client wants usage in a stream that tells it only then. `hide_event` takes out the event
    that holds nothing but usage, `hide_numbers` the usage beside choices. `per_choice`: the engine tells tokens of each
    choice apart, as llama.cpp does. `prompt` is our estimate of the prompt's tokens. `count`: usage is to be known.
    """

    endpoint: Endpoint
    origin: Origin
    renamed: str | None = None
    choices: int = 1
    asked: bool = True
    hide_event: bool = False
    hide_numbers: bool = False
    per_choice: bool = False
    prompt: int = 0
    count: bool = True
    caps: Caps = NO_CAPS
    measure: Measure = USUAL

    @property
    def changes_stream(self) -> bool:
        """Whether events of a stream may have to change."""
        return self.hide_event or self.hide_numbers or self.renamed is not None or self.caps is not NO_CAPS

    @property
    def changes_whole(self) -> bool:
        """Whether a JSON answer may have to change."""
        return self.renamed is not None or self.caps.on_text


class Answer:
    """An answer that passes unread, and what streams and JSON answers have in common.

    `ended`: we have ended it, nothing is to follow and the engine may stop. `truncated`: which cap cut it. `unread`:
    something was too large, compressed or broken, and passed unread; usage may then be missing.
    """

    __slots__ = ("_acts", "_inflater", "_plan", "_spoken", "ended", "reader", "truncated", "unread")

    watched: ClassVar[bool] = False
    """Whether its bytes are to go through here."""

    def __init__(self, plan: Plan, inflater: Inflater | None = None, *, acts: bool = False, unread: bool = False):
        self._plan = plan
        self._acts = acts
        self._inflater = inflater
        self._spoken = Spoken(plan.measure)
        self.reader = UsageReader(plan.per_choice, plan.choices)
        self.ended = False
        self.truncated: Cap | None = None
        self.unread = unread

    def piece(self, chunk: bytes) -> bytes:
        """Take the next bytes; those that go on to the client."""
        return chunk

    def finish(self) -> bytes:
        """The engine's bytes are over, or cut; what is still to go on. May be told twice."""
        return b""

    def expired(self) -> bytes:
        """Its time is over; what ends the answer here, if it can be ended."""
        return b""

    @property
    def expires(self) -> float | None:
        """Seconds after which it is to be told that its time is over."""
        return None

    @property
    def changing(self) -> bool:
        """Whether it may go on with other bytes, and another length, than it came with."""
        return self._acts

    @property
    def recoded(self) -> bool:
        """Whether it goes on without the coding that it came in: one in which something may change goes on plain."""
        return self._inflater is not None and self._acts

    @property
    def usage(self) -> Usage:
        """Tokens as the engine told them, and our own count in the place of what it did not tell."""
        told = self.reader
        known = Usage(told.input_tokens, told.output_tokens, told.cached_tokens, told.reasoning_tokens)
        prompt = self._plan.prompt if told.input_tokens is None else told.input_tokens
        if self._plan.endpoint.stream is None:
            # Of embeddings the prompt is all.
            return known if told.input_tokens is not None else Usage(prompt, estimated=True)
        if self._spoken.pieces and told.output_tokens is None:
            return Usage(prompt, self._spoken.likely, told.cached_tokens, told.reasoning_tokens, estimated=True)
        if told.error or (told.input_tokens is not None and told.output_tokens is not None):
            # An error before any text costs nothing.
            return known
        output = told.output_tokens
        if output is None and told.done and not self.unread:
            output = 0
        return Usage(prompt, output, told.cached_tokens, told.reasoning_tokens, estimated=True)

    def _renamed(self, data: bytes) -> bytes:
        """Put the client's name of the model where the engine's stands."""
        if b'"model"' not in data:
            return data
        edits = []
        for path in self._plan.endpoint.model_paths:
            span = locate(data, path)
            if span is not None and data[span[0] : span[0] + 1] == b'"':
                edits.append((*span, encoded(self._plan.origin.model)))
        return spliced(data, edits) if edits else data
