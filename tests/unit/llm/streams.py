"""The streams of tests/data/streams, and ways to send them through an answer."""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from seawall.llm.answer import Plan
from seawall.llm.protocols import CHAT, COMPLETIONS, MESSAGES, RESPONSES, Endpoint
from seawall.llm.protocols.contract import Origin
from seawall.llm.stream_answer import StreamAnswer
from seawall.llm.truncate import Caps

STREAMS = {
    path.stem: path.read_bytes() for path in sorted((Path(__file__).parents[2] / "data" / "streams").glob("*.sse"))
}
LARGE = Caps(10**9, 10**9, 10**9)
"""Caps that no answer comes near: everything is looked at and nothing is cut."""


def endpoint_of_stream(name: str) -> Endpoint:
    """The API that a stream is of."""
    if "completions" in name:
        return COMPLETIONS
    return MESSAGES if name.startswith("anthropic") else RESPONSES if name.startswith("responses") else CHAT


def plan(name: str, **more: Any) -> Plan:
    """A plan for a stream: the client asked for usage, nothing is to be done."""
    return replace(
        Plan(endpoint_of_stream(name), Origin("r1", "mine", 7), choices=2 if "two_choices" in name else 1), **more
    )


def through(answer: StreamAnswer, pieces: Iterable[bytes]) -> bytes:
    """What goes to the client of a stream that comes in these pieces."""
    sent = b"".join([answer.piece(piece) for piece in pieces])
    return sent if answer.ended else sent + answer.finish()


def data_of(stream: bytes) -> list[bytes]:
    """Data of the events of a stream, read plainly (line ends LF or CRLF)."""
    events = stream.replace(b"\r\n", b"\n").split(b"\n\n")
    return [
        b"\n".join(line[5:].removeprefix(b" ") for line in event.split(b"\n") if line.startswith(b"data:"))
        for event in events
        if b"data:" in event
    ]
