"""Plays a case of tests/cases/llm: a client's request and an engine's answer through one exchange, without a proxy.

A case has `request` or `requests` by name, `upstream` (the answer, or `variants` of it, by the request's name where they
are named alike), `expect`, and perhaps `policy` (sections of the document), `kind` of the engines, `actions` of a rung,
`slot: false`, `trailers`, `twice` (the body's end comes again), `leaves` (after so many chunks, or `end`).

    request   path, headers, json | chat (members of a chat beside model and messages) | body | raw
    body      a text, {hex}, or {prefix, pad: N, byte, suffix}
    upstream  sse: true | json: true | status, headers; chunks; gap_ms between them; encode: gzip; sweep: every_offset
    chunk     a text, {hex}, {b64}, {repeat, times, from}, {split, every: k}, {hang_ms}

Time is counted, not spent. What each word of `expect` means is told in test_cases.py.
"""

import base64
import gzip
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import yaml

from ext_proc import events as ev
from ext_proc.stream import Exchange
from seawall.llm.rewrites import Actions
from seawall.policy.compile import compile_policy
from seawall.policy.compiled import Policy

START = '"id":"chatcmpl-7f3a","object":"chat.completion.chunk","created":1767225600,"model":"m-large",'
METADATA = {"tenant": "acme", "class": "vip", "rid": "r1"}
SAY = {"model": "m-large", "messages": [{"role": "user", "content": "Say hello"}]}


@dataclass
class Play:
    """What happened: `given` and `sent` are the answer's bytes from the engine and to the client."""

    request: bytes
    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    given: bytes = b""
    sent: bytes = b""
    upstream: bytes | None = None
    """Body that the engine got, None if it was not called."""
    upstream_headers: Mapping[str, str] = field(default_factory=dict)
    calls: int = 0
    unread: bool = False
    """Passed on by its headers alone."""
    reset: bool = False
    """We ended the answer before the engine had."""
    trailers: int = 0
    record: ev.Record | None = None


def policy_of(case: Mapping[str, Any]) -> Policy:
    """The policy of a case: one pool of one engine."""
    sections = {
        "classes": {"vip": None},
        "prefilter": {"body": {"max": "16KiB"}},
        "engines": {"e0": {"url": "http://127.0.0.1:1", "kind": case.get("kind", "vllm")}},
        **case.get("policy", {}),
    }
    return _compiled(yaml.safe_dump(sections))


@cache
def _compiled(text: str) -> Policy:
    return compile_policy(text)


def bytes_of(written: Any) -> bytes:
    """Bytes of a text, of {hex}, {b64} or {prefix, pad, byte, suffix}."""
    if isinstance(written, str):
        return written.replace("@", START).encode()
    if "hex" in written:
        return bytes.fromhex(written["hex"])
    if "b64" in written:
        return base64.b64decode(written["b64"])
    return b"".join((written["prefix"].encode(), written["byte"].encode() * written["pad"], written["suffix"].encode()))


def body_of(request: Mapping[str, Any]) -> bytes:
    """Body of a request."""
    if "body" in request:
        return bytes_of(request["body"])
    if "raw" in request:
        return b""
    return json.dumps({**SAY, **request["chat"]} if "chat" in request else request.get("json", {})).encode()


def chunks_of(upstream: Mapping[str, Any]) -> Iterator[tuple[float, bytes]]:
    """Chunks of an answer, each with the seconds that pass before it."""
    gap = upstream.get("gap_ms", 0) / 1000
    wait = 0.0
    for chunk in upstream.get("chunks", ()):
        if isinstance(chunk, dict) and "hang_ms" in chunk:
            wait += chunk["hang_ms"] / 1000
            continue
        if isinstance(chunk, dict) and "repeat" in chunk:
            first = chunk.get("from", 0)
            texts = [
                chunk["repeat"].replace("{i}", str(i)).replace("{n}", str(first + i)) for i in range(chunk["times"])
            ]
            pieces = [bytes_of(text) for text in texts]
        elif isinstance(chunk, dict) and "split" in chunk:
            whole, size = bytes_of(chunk["split"]), chunk["every"]
            pieces = [whole[i : i + size] for i in range(0, len(whole), size)]
        else:
            pieces = [bytes_of(chunk["data"] if isinstance(chunk, dict) and "data" in chunk else chunk)]
        for piece in pieces:
            yield gap + wait, piece
            wait = 0.0


def cuttings(upstream: Mapping[str, Any]) -> Iterator[list[tuple[float, bytes]]]:
    """The answer's chunks in every way that they are to be cut: as written, or in two at every byte and byte by byte."""
    chunks = list(chunks_of(upstream))
    if upstream.get("encode") == "gzip":
        whole = gzip.compress(b"".join(chunk for _, chunk in chunks), 6)
        chunks = [(0.0, whole[i : i + 500]) for i in range(0, len(whole), 500)]
    yield chunks
    if upstream.get("sweep"):
        whole = b"".join(chunk for _, chunk in chunks)
        for i in range(1, len(whole)):
            yield [(0.0, whole[:i]), (0.0, whole[i:])]
        yield [(0.0, bytes([b])) for b in whole]


def play(
    case: Mapping[str, Any],
    request: Mapping[str, Any],
    upstream: Mapping[str, Any],
    chunks: list[tuple[float, bytes]],
) -> Play:
    """Play one request against one answer."""
    body = body_of(request)
    exchange = Exchange(policy_of(case), 0.0, actions=Actions(**case.get("actions", {})))
    play = Play(body)
    _Player(exchange, play).run(case, request, upstream, chunks)
    return play


class _Player:
    def __init__(self, exchange: Exchange, play: Play):
        self.exchange = exchange
        self.play = play
        self.now = 0.0
        self.alarm: float | None = None
        self.over = False

    def run(
        self,
        case: Mapping[str, Any],
        request: Mapping[str, Any],
        upstream: Mapping[str, Any],
        chunks: list[tuple[float, bytes]],
    ) -> None:
        self.ask(case, request)
        if not self.over:
            self.answer(case, upstream, chunks)
        self.do(self.exchange.closed(self.now))
        assert self.play.record is not None or self.play.unread

    def ask(self, case: Mapping[str, Any], request: Mapping[str, Any]) -> None:
        exchange, play = self.exchange, self.play
        length = (
            {}
            if request.get("framing") == "chunked" or "raw" in request
            else {"content-length": str(len(play.request))}
        )
        headers = {
            ":method": request.get("method", "POST"),
            ":path": request.get("path", "/v1/chat/completions"),
            **length,
            **(request.get("headers") or {}),
        }
        self.do(exchange.request_headers(ev.RequestHeaders(headers, not play.request, METADATA, "10.0.0.1:5")))
        if self.over or play.unread:
            return
        trailers = case.get("trailers", False)
        self.do(exchange.request_body(ev.RequestBody(play.request, not trailers)))
        if not self.over:
            self.do(exchange.slot(case.get("slot", True)))
        if trailers and not self.over:
            self.do(exchange.trailers(False))
        if case.get("twice"):
            self.do(exchange.request_body(ev.RequestBody(b"", True)))

    def answer(self, case: Mapping[str, Any], upstream: Mapping[str, Any], chunks: list[tuple[float, bytes]]) -> None:
        exchange, play = self.exchange, self.play
        kind = "text/event-stream; charset=utf-8" if upstream.get("sse") else "application/json"
        headers = {"content-type": kind, **upstream.get("headers", {})}
        play.status = upstream.get("status", 200)
        self.streamed = False
        self.do(exchange.response_headers(ev.ResponseHeaders({":status": str(play.status), **headers}, not chunks)))
        leaves = case.get("leaves")
        for i, (wait, chunk) in enumerate(chunks):
            self.pass_time(wait)
            if self.over or i == leaves:
                break
            play.given += chunk
            if self.streamed:
                self.do(exchange.response_body(ev.ResponseBody(chunk, False)))
            else:
                play.sent += chunk
        if self.streamed and not self.over and not leaves:
            self.do(
                exchange.trailers(True) if case.get("trailers") else exchange.response_body(ev.ResponseBody(b"", True))
            )
        play.given = b"".join(chunk for _, chunk in chunks) if not leaves else play.given

    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        if self.alarm is not None and self.now >= self.alarm and not self.over:
            self.now = self.alarm
            self.do(self.exchange.alarm())

    def do(self, commands: list[ev.Command]) -> None:
        play = self.play
        for command in commands:
            match command:
                case ev.Refuse(answer):
                    play.status, play.sent = answer.status, answer.body
                    play.headers = dict(answer.headers)
                    self.over = True
                case ev.PassHeaders():
                    play.unread, play.calls, play.upstream = True, 1, play.request
                case ev.PassBody(body, headers):
                    if play.upstream is None:
                        play.calls += 1
                        play.upstream = play.request if body is None else body
                        play.upstream_headers = headers
                case ev.PassResponseHeaders(streamed, headers, removed):
                    self.streamed = streamed
                    play.headers.update(headers)
                    play.headers["removed"] = " ".join(removed)
                case ev.PassPiece(body, end):
                    assert not self.over, "a piece after the end"
                    play.sent += body
                    if end:
                        play.reset = self.exchange._answer is not None and not self.exchange.answer_seen
                        self.over = True
                case ev.PassTrailers():
                    play.trailers += 1
                case ev.Alarm(after):
                    self.alarm = self.now + after
                case ev.Finished(record):
                    play.record = record
