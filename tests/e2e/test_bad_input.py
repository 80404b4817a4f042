"""Whatever a client sends, it gets an envelope that its SDK understands, and no worker dies of it."""

import json
import socket

import pytest

from tests.e2e.running_gate import PAUSE, RunningGate
from tests.e2e.tiny_envoy import Answer, received, send

pytestmark = pytest.mark.e2e

MESSAGES = '"messages": [{"role": "user", "content": "x"}]'


def chat(more: str) -> bytes:
    return f'{{"model": "sim-chat", {MESSAGES}, {more}}}'.encode()


BODIES = {
    "empty": (b"", 400, "body"),
    "no JSON": (b"hello", 400, "body"),
    "an array": (b"[]", 400, "body"),
    "cut": (b'{"model": "sim-chat", "messages": [', 400, "messages"),
    "invalid UTF-8": (b'{"model": "\xff\xfe"}', 400, "body"),
    "a thousand nested arrays": (b'{"messages": ' + b"[" * 1000 + b"]" * 1000 + b"}", 400, "messages"),
    "a thousand messages": (
        json.dumps({"model": "sim-chat", "messages": [{"role": "user", "content": "x"}] * 1000}).encode(),
        413,
        "body",
    ),
    "duplicate keys": (chat('"max_tokens": 1, "max_tokens": 2'), 400, "max_tokens"),
    "duplicate keys in disguise": (chat('"max_tokens": 1, "max_\\u0074okens": 2'), 400, "max_tokens"),
    "max_tokens a string": (chat('"max_tokens": "12"'), 400, "max_tokens"),
    "max_tokens negative": (chat('"max_tokens": -1'), 400, "max_tokens"),
    "max_tokens zero": (chat('"max_tokens": 0'), 400, "max_tokens"),
    "max_tokens 1e309": (chat('"max_tokens": 1e309'), 400, "max_tokens"),
    "max_tokens true": (chat('"max_tokens": true'), 400, "max_tokens"),
    "max_tokens of 5,000 digits": (chat('"max_tokens": ' + "9" * 5000), 400, "max_tokens"),
    "NaN": (chat('"temperature": NaN'), 400, "temperature"),
    "stream a string": (chat('"stream": "yes"'), 400, "stream"),
    "half a surrogate": (b'{"model": "\\ud800", "\\udc00": 1, "\\udc00": 2}', 400, None),
    "no messages": (b'{"model": "sim-chat"}', 400, "messages"),
    "model a number": (b'{"model": 5, "messages": [{}]}', 400, "model"),
}


@pytest.mark.parametrize("name", BODIES)
def test_a_bad_body_gets_an_envelope_that_names_the_field(gate: RunningGate, name: str) -> None:
    """4xx, JSON, OpenAI's shape, the field in `param`."""
    body, status, param = BODIES[name]
    response = gate.post("/v1/chat/completions", body)
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/json"
    error = response.json()["error"]
    assert error["type"] == "invalid_request_error"
    if param is not None:
        assert error["param"] == param


@pytest.mark.parametrize("name", ["no JSON", "a thousand messages", "max_tokens true"])
def test_anthropic_paths_get_anthropic_envelopes(gate: RunningGate, name: str) -> None:
    """The same refusals on /v1/messages, in Anthropic's shape."""
    body, status, _ = BODIES[name]
    response = gate.post("/v1/messages", body)
    assert response.status_code == status
    assert response.json()["type"] == "error"
    assert response.json()["error"]["message"]


def test_large_headers_are_refused_by_name(gate: RunningGate) -> None:
    """A header of 64 KiB passes Envoy and is refused by the prefilter, which names it."""
    response = gate.get("/v1/models", **{"x-large": "a" * 65536})
    assert response.status_code == 431
    assert "x-large" in response.json()["error"]["message"]


def test_other_methods_and_codings_are_refused(gate: RunningGate) -> None:
    """GET on a chat and a gzip body are 4xx envelopes."""
    wrong = gate.get("/v1/chat/completions")
    assert (wrong.status_code, wrong.headers["allow"]) == (405, "POST")
    packed = gate.post("/v1/chat/completions", b"\x1f\x8b", **{"content-encoding": "gzip"})
    assert packed.status_code == 415
    assert packed.json()["error"]["param"] == "content-encoding"


def chunked(gate: RunningGate, size: int) -> bytes:
    head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: a\r\nauthorization: Bearer {gate.keys['vip']}\r\n"
    body = b'{"model": "sim-chat", "max_tokens": 2, "messages": [{"role": "user", "content": "' + b"x" * size + b'"}]}'
    chunk = b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)
    return head.encode() + b"user-agent: t\r\nconnection: close\r\ntransfer-encoding: chunked\r\n\r\n" + chunk


@pytest.mark.parametrize(("size", "status"), [(10, 200), (20_000, 413)])
@pytest.mark.parametrize("gaps", [False, True], ids=["at once", "piece by piece"])
def test_chunked_bodies_are_read_and_capped(gate: RunningGate, size: int, status: int, gaps: bool) -> None:
    """A body whose length is not told is served, or refused at the cap, however it arrives."""
    raw = chunked(gate, size)
    head, _, body = raw.partition(b"\r\n\r\n")
    third = len(body) // 3
    pieces = [head + b"\r\n\r\n", body[:third], body[third : 2 * third], body[2 * third :]] if gaps else [raw]
    answer = send_pieces(int(gate.base.rpartition(":")[2]), pieces)
    assert answer.status == status
    if status == 413:
        assert answer.json()["error"]["code"] == "request_too_large"


def send_pieces(port: int, pieces: list[bytes]) -> Answer:
    """Send with pauses in between, long enough for Envoy to have read what came before."""
    with socket.create_connection(("127.0.0.1", port), timeout=60) as s:
        for piece in pieces:
            s.sendall(piece)
            PAUSE.wait(0.05 if len(pieces) > 1 else 0)
        return received(s)


RAW = {
    "NUL in a header": b"GET /v1/models HTTP/1.1\r\nhost: a\r\nx: a\0b\r\n\r\n",
    "both framings": b"POST /v1/models HTTP/1.1\r\nhost: a\r\ncontent-length: 3\r\ntransfer-encoding: chunked\r\n\r\nabc",
    "96 KiB of headers": b"GET /v1/models HTTP/1.1\r\nhost: a\r\n" + b"x-%d: " % 1 + b"a" * 100_000 + b"\r\n\r\n",
    "no HTTP": b"hello there\r\n\r\n",
}


@pytest.mark.parametrize("name", RAW)
def test_what_envoy_refuses_itself_is_an_envelope_too(gate: RunningGate, name: str) -> None:
    """400 or 431 with a JSON envelope, though no service was asked."""
    answer = send(int(gate.base.rpartition(":")[2]), RAW[name])
    assert answer.status in {400, 431}
    assert answer.json()["error"]["message"]


def test_no_worker_died_of_it(gate: RunningGate) -> None:
    """After all of the above no worker was restarted and no fault of ours was counted."""
    for body, _, _ in BODIES.values():
        gate.post("/v1/chat/completions", body)
    assert gate.metric("seawall_worker_restarts_total") == 0
    assert gate.metric("seawall_faults_total") == 0
    assert gate.chat(max_tokens=1).status_code == 200
