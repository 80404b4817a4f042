"""A streamed answer: usage read and hidden, the model's name put back, caps kept."""

from dataclasses import replace

import msgspec

from seawall.llm.answer import Answer, Plan
from seawall.llm.inflate import Inflater
from seawall.llm.protocols.contract import End, Stream, Tokens
from seawall.llm.spans import changed, encoded
from seawall.llm.sse import TAIL, Event, SseEvents, with_data
from seawall.llm.truncate import NO_CAPS, Cap, Meter, shortened
from seawall.llm.usage import Usage, numbers_of, read_json

_ENDED_HERE = (b'"finish_reason":"', b'"finish_reason": "')


class StreamAnswer(Answer):
    """An SSE stream."""

    __slots__ = ("_continuous", "_dropped", "_events", "_meter", "_model", "_quick", "_stream", "_told")

    watched = True

    def __init__(self, plan: Plan, inflater: Inflater | None = None):
        super().__init__(plan, inflater, acts=plan.changes_stream)
        self._events = SseEvents()
        self._continuous: bool | None = None
        self._dropped = False
        self._told: int | None = None
        """Output tokens so far, where the event at hand tells them."""
        self._stream: Stream | None = None
        self._meter: Meter | None = None
        if plan.caps is not NO_CAPS and plan.endpoint.stream is not None:
            self._stream = plan.endpoint.stream(plan.origin, plan.choices)
            self._meter = Meter(plan.caps, plan.choices, self._spoken)
        self._quick = inflater is None and plan.renamed is None and plan.choices == 1 and bool(plan.endpoint.needle)
        self._model: tuple[bytes, bytes] | None = None
        if plan.renamed is not None and plan.endpoint.model_paths == (("model",),):
            self._model = (b'"model":' + encoded(plan.renamed), b'"model":' + encoded(plan.origin.model))

    @property
    def expires(self) -> float | None:
        """The cap on its time."""
        return self._plan.caps.seconds if self._stream is not None else None

    def piece(self, chunk: bytes) -> bytes:
        """Take the next bytes of the stream."""
        if self.ended or (self._quick and self._is_text(chunk)):
            return b"" if self.ended else chunk
        plain = chunk if self._inflater is None else self._inflater.feed(chunk)
        events = self._events.feed(plain)
        if self._acts:
            sent = self._sent(events)
            if self._inflater is not None and self._inflater.failed:
                # Plain text was promised, and there is none any more.
                self.unread = self.ended = True
            return sent
        for _, data in events:
            if data is not None:
                self._read(data)
        return chunk

    def _is_text(self, chunk: bytes) -> bool:
        """Count a chunk that is nothing but a piece of one text within the caps, as nearly all are; else look closer."""
        size = self._plain_text(chunk)
        if size is None or b'"error"' in chunk:
            return False
        usage = chunk.find(b'"usage"')
        if usage >= 0 and not (chunk.startswith(b":null", usage + 7) and chunk.find(b'"usage"', usage + 7) < 0):
            return False
        if b'_stop"' in chunk or b'"response.' in chunk:
            return False
        meter = self._meter
        if meter is not None and (self._stream is None or not self._stream.is_indifferent(chunk)):
            return False
        if not self._events.passes(chunk):
            return False
        if meter is not None:
            if not meter.take_plain(size, None):
                # The event was taken: it is cut here, where the long way would cut it.
                return False
        elif size and self.reader.output_tokens is None:
            self._spoken.pieces += 1
            self._spoken.size += size
        self._dropped, self._told = False, None
        return True

    def finish(self) -> bytes:
        """The stream's bytes are over: the last event may lack its empty line, and counts."""
        if self.ended:
            return b""
        inflater = self._inflater
        self.unread = self._events.overflowed or (inflater is not None and inflater.failed)
        events = self._events.finish()
        if self._acts:
            return self._sent(events)
        for _, data in events:
            if data is not None:
                self._read(data)
        return b""

    def expired(self) -> bytes:
        """End the stream as its protocol ends it; an event that is unfinished is not sent.

        A stream that is over to its reader, or that an error has ended, needs no end. Inside an event that passes unread
        there is no place for one.
        """
        if self.ended or self._stream is None:
            return b""
        if self.reader.done or self.reader.error or self._events.overflowed:
            self.ended = True
            self.truncated = None if self.reader.done else Cap.TIME
            return b""
        return self._end(Cap.TIME)

    @property
    def usage(self) -> Usage:
        """Tokens; of a stream that a cap on them cut those that went to the client, as the cap has counted them."""
        usage = super().usage
        if self.truncated is not Cap.TOKENS or self._meter is None or usage.output_tokens is None:
            return usage
        return replace(usage, output_tokens=self._meter.counted(usage.output_tokens))

    def _sent(self, events: list[Event]) -> bytes:
        if len(events) == 1:
            return self._event(events[0])
        out = []
        for event in events:
            out.append(self._event(event))
            if self.ended:
                break
        return b"".join(out)

    def _event(self, event: Event) -> bytes:
        raw, data = event
        if data is None:
            if event is TAIL and self._dropped:
                return b""
            if self._events.overflowed and not self.unread:
                self.unread = True
                if self._plan.caps.size is not None:
                    return self._end(Cap.BYTES)
            return raw
        new = self._changed(data)
        self._dropped = new is None
        if new is None:
            return b""
        if new is not data:
            raw = with_data(raw, data, new)
        return raw if self._meter is None else self._metered(raw, new, self._meter)

    def _changed(self, data: bytes) -> bytes | None:
        """Read an event, then hide and rename in it; None where it is not to be sent at all."""
        new: bytes | None = data
        plan = self._plan
        self._told = None
        if plan.endpoint.usage_asked and (at := data.rfind(b'"usage"')) > 0:
            new = self._with_usage(data, at)
        else:
            self._read(data)
        if new is not None and plan.renamed is not None:
            return self._with_model(new)
        return new

    def _with_usage(self, data: bytes, at: int) -> bytes | None:
        plan = self._plan
        plain = data.startswith(b":{", at + 7) and data.endswith(b"}") and data[at - 1] == 0x2C
        if plain and plan.choices == 1 and b'"error"' not in data and data.find(b'"usage"', 0, at) < 0:
            try:
                numbers = numbers_of(data[at + 8 : -1])
            except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
                pass
            else:
                # What follows the name is one whole object and then the end: it is a member of the event itself.
                self.reader.numbers(numbers)
                if b'"choices":[]' in data:
                    return None if plan.hide_event else data
                self._told = self.reader.output_tokens
                if self._told is None and self._meter is None:
                    self._count(data)
                return data[: at - 1] + b"}" if plan.hide_numbers and self._is_continuous(data) else data
        self._read(data)
        event = read_json(data)
        if not isinstance(event, dict) or not isinstance(event.get("usage"), dict):
            return data
        if event.get("choices") == []:
            return None if plan.hide_event else data
        self._told = self.reader.output_tokens
        if plan.hide_numbers and self._is_continuous(data):
            try:
                return changed(data, {("usage",): None})
            except ValueError:
                # A name is given twice: whatever it says, it says it to the client.
                return data
        return data

    def _is_continuous(self, data: bytes) -> bool:
        """Whether the engine tells usage all along, which it does only because we asked.

        Some engines tell it once, beside the end of the text: that is what the client has asked for.
        """
        if self._continuous is None:
            self._continuous = not self._plan.asked or not any(mark in data for mark in _ENDED_HERE)
        return self._continuous

    def _with_model(self, data: bytes) -> bytes:
        if self._model is not None:
            name, instead = self._model
            at = data.find(b'"model"')
            if data.startswith(name, at) and data[at - 1] != 0x5C and data.find(b'"model"', at + 7) < 0:
                return data[:at] + instead + data[at + len(name) :]
        return self._renamed(data)

    def _read(self, data: bytes) -> None:
        self.reader.event(data)
        if self._meter is None and self.reader.output_tokens is None:
            self._count(data)

    def _count(self, data: bytes) -> None:
        """Count the text of an event ourselves: the engine may never tell."""
        size = self._plain_text(data)
        if size is not None:
            if size:
                self._spoken.pieces += 1
                self._spoken.size += size
            return
        deltas = self._plan.endpoint.deltas
        if deltas is not None and data.startswith(b"{"):
            event = read_json(data)
            if isinstance(event, dict):
                for delta in deltas(event):
                    self._spoken.add(delta.text)

    def _plain_text(self, data: bytes) -> int | None:
        """Bytes of the one text of an event as engines write nearly all of them, without parsing it; None if unsure."""
        needle = self._plan.endpoint.needle
        at = data.find(needle)
        if at < 0 or self._plan.choices != 1:
            return None
        at += len(needle)
        text = data[at : data.find(b'"', at)]
        return None if b"\\" in text or data.find(needle, at) >= 0 or b'"tool_calls":[' in data else len(text)

    def _metered(self, raw: bytes, data: bytes, meter: Meter) -> bytes:
        if self._stream is not None and self._stream.is_indifferent(data):
            # Tokens that are told need no text, bytes of text do.
            size = 0 if self._told is not None and self._plan.caps.size is None else self._plain_text(data)
            if size is not None and meter.take_plain(size, self._told):
                return raw
        event = read_json(data)
        endpoint = self._plan.endpoint
        if not isinstance(event, dict) or endpoint.deltas is None or self._stream is None:
            return raw
        kept = meter.take(endpoint.deltas(event), self._told)
        if kept is None:
            self._stream.take(event)
            return raw
        sent = b""
        if any(kept.values()):
            others = self._stream.unfinished(event)
            if isinstance(event.get("usage"), dict):
                others["usage",] = None
            cut = shortened(data, kept, others)
            self._stream.take(read_json(cut))
            sent = with_data(raw, data, cut)
        return sent + self._end(meter.which or Cap.TOKENS)

    def _end(self, cap: Cap, why: End = End.LENGTH) -> bytes:
        self.ended = True
        self.truncated = cap
        if self._stream is None:
            return b""
        tokens = None
        if self._plan.asked or not self._plan.endpoint.usage_asked:
            usage = self.usage
            tokens = Tokens(usage.input_tokens or 0, usage.output_tokens or 0)
        return self._stream.end(why, tokens)
