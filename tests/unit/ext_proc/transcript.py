"""Transcripts of an exchange: lines to events, commands to lines.

Events: `METHOD path header=value … [end|chunked]` · `body TEXT` · `body of N bytes` · `part TEXT` ·
`slot granted|refused` · `answer STATUS [content-type] header=value … [end]` · `piece TEXT` · `last TEXT` ·
`trailers` · `request trailers` · `alarm` · `close`.
A request with a body tells its length, 50 unless written otherwise, or is `chunked`.
Two characters `\\n` in a TEXT are a line end. Commands are told in the same words.
"""

import json
from collections.abc import Iterator, Mapping

from ext_proc import events as ev
from ext_proc.stream import Exchange
from seawall.policy.compiled import Policy

METADATA = {"tenant": "acme", "class": "vip", "rid": "r1"}
STARTED, ENDED = 100.0, 102.5


def replay(policy: Policy, lines: str, metadata: Mapping[str, str]) -> Iterator[str]:
    """Give the events of a transcript to a new exchange; the transcript as it really went."""
    exchange = Exchange(policy, STARTED)
    for line in lines.splitlines():
        if line.startswith("> "):
            yield line
            for command in tell(exchange, line.removeprefix("> "), metadata):
                yield f"< {shown(command)}"


def tell(exchange: Exchange, event: str, metadata: Mapping[str, str]) -> list[ev.Command]:
    """Give one event to an exchange."""
    word, _, rest = event.partition(" ")
    match word:
        case "body" | "part":
            body = b"x" * int(rest.split()[1]) if rest.startswith("of ") else rest.encode()
            return exchange.request_body(ev.RequestBody(body, word == "body"))
        case "slot":
            return exchange.slot(rest == "granted")
        case "answer":
            status, *words = rest.split()
            end, named = words[-1:] == ["end"], dict(w.split("=", 1) for w in words if "=" in w and "/" not in w)
            kinds = [w for w in words if "/" in w]
            headers = {":status": status, **({"content-type": kinds[0]} if kinds else {}), **named}
            return exchange.response_headers(ev.ResponseHeaders(headers, end))
        case "piece" | "last":
            return exchange.response_body(ev.ResponseBody(rest.replace("\\n", "\n").encode(), word == "last"))
        case "alarm":
            return exchange.alarm()
        case "trailers":
            return exchange.trailers(True)
        case "request":
            return exchange.trailers(False)
        case "close":
            return exchange.closed(ENDED)
    path, *words = rest.split()
    length = {} if {"end", "chunked"} & {*words} else {"content-length": "50"}
    headers = {":method": word, ":path": path, **length, **dict(w.split("=", 1) for w in words if "=" in w)}
    return exchange.request_headers(ev.RequestHeaders(headers, "end" in words, metadata, "10.0.0.1:5"))


def shown(command: ev.Command) -> str:
    """Write one command."""
    match command:
        case ev.PassHeaders(headers):
            return " ".join(["pass", *sorted_headers(headers)])
        case ev.AskForBody():
            return "ask for the body"
        case ev.PassBody(body, headers, removed):
            text = [] if body is None else [body.decode()]
            return " ".join(["pass the body", *text, *sorted_headers(headers), *(f"-{name}" for name in removed)])
        case ev.PassResponseHeaders(stream_body, headers, removed):
            words = ["pass the answer, read it" if stream_body else "pass the answer"]
            return " ".join([*words, *sorted_headers(headers), *(f"-{name}" for name in removed)])
        case ev.PassPiece(body, end, metadata):
            told = f" [{' '.join(sorted_headers(metadata))}]" if metadata else ""
            return f"{'last' if end else 'piece'} {body.decode()}".replace("\n", "\\n") + told
        case ev.Alarm(after):
            return f"alarm in {after:g} s"
        case ev.PassTrailers(response):
            return "trailers" if response else "request trailers"
        case ev.Refuse(answer, details):
            error = json.loads(answer.body)["error"]
            retry = [f"{name}={value}" for name, value in answer.headers if name.startswith("retry-")]
            field = [error["param"]] if error.get("param") else []
            return f"{' '.join(['refuse', str(answer.status), details, *field, *retry])}: {error['message']}"
        case ev.Acquire(pool, rid, limit):
            return f"acquire {pool} {rid} of {limit}"
        case ev.Release():
            return "release"
        case ev.Finished(record):
            assert record.latency == ENDED - STARTED
            numbers = {
                "model": record.model,
                "pool": record.pool,
                "input": record.usage and record.usage.input_tokens,
                "output": record.usage and record.usage.output_tokens,
                "cached": record.usage and record.usage.cached_tokens,
                "reasoning": record.usage and record.usage.reasoning_tokens,
                "truncated": record.truncated,
            }
            words = ["record", record.reason.value, record.tenant, record.class_]
            words += [f"{name}={value}" for name, value in numbers.items() if value not in {"", None}]
            words += ["estimated"] if record.usage and record.usage.estimated else []
            words += ["unread"] if record.unread else []
            return " ".join(word for word in words if word)


def sorted_headers(headers: Mapping[str, str]) -> list[str]:
    """Headers as words, by name."""
    return [f"{name}={value}" for name, value in sorted(headers.items())]
