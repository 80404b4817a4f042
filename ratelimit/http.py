"""What the service answers by HTTP: /json, /rlconfig, /explain. A worker's pages; the supervisor has the ports."""

import asyncio
import json
from collections.abc import Awaitable, Iterator
from typing import Any

from ratelimit import wire_json
from ratelimit.service import Service
from seawall.limits.build import limits_of
from seawall.limits.descriptor import Limit
from seawall.rpc.contract import Call, RpcError, Status
from seawall.serve.errands import Page, Pages, Question
from seawall.store.contract import StoreUnavailable

JSON_TIME = 1.0
"""Seconds that a call by /json may take: it brings no deadline of its own."""
_OVER = '"overallCode": "OVER_LIMIT"'
_CODES = {Status.INVALID_ARGUMENT: 400, Status.UNAVAILABLE: 503}


def pages(service: Service) -> Pages:
    """Pages by path."""

    async def call(question: Question) -> Page:
        try:
            data = wire_json.request(question.body)
        except ValueError:
            return _text(400, "Bad Request\n")
        try:
            async with asyncio.timeout(JSON_TIME):
                told = service.should_rate_limit(data, Call("/json", {}, None))
                answer = wire_json.response(await told if isinstance(told, Awaitable) else told)
        except RpcError as e:
            return _text(_CODES.get(e.status, 500), f"{e.message}\n")
        except TimeoutError:
            return _text(503, "no answer in time\n")
        return Page(429 if _OVER in answer else 200, "application/json", answer)

    async def rules(_: Question) -> Page:
        return _text(200, "".join(f"{line}\n" for line in _rules(service)))

    async def explain(question: Question) -> Page:
        try:
            told = await service.explain(_asked(question))
        except ValueError as e:
            return _text(400, f"{e}\n")
        except RpcError as e:
            return _text(_CODES.get(e.status, 500), f"{e.message}\n")
        except StoreUnavailable as e:
            return _text(503, f"the store of the counters is away: {e}\n")
        return Page(200, "application/json", json.dumps(told, indent=2) + "\n")

    return {"/json": call, "/rlconfig": rules, "/explain": explain}


def _text(status: int, text: str) -> Page:
    return Page(status, "text/plain", text)


def _asked(question: Question) -> bytes:
    """The call of a body, or of `?domain=D&descriptor=key=value,key=value`. Raises ValueError."""
    if question.body:
        return wire_json.request(question.body)
    given: dict[str, list[str]] = {}
    for name, value in question.query:
        given.setdefault(name, []).append(value)
    unknown = given.keys() - {"domain", "descriptor"}
    if unknown or not given:
        raise ValueError("give a RateLimitRequest as JSON, or ?domain=D&descriptor=key=value,key=value")
    return wire_json.simple_request(
        "".join(given.get("domain", [])), [_entries(text) for text in given.get("descriptor", [])]
    )


def _entries(text: str) -> list[tuple[str, str]]:
    found = [part.partition("=") for part in text.split(",")]
    return [(key, value) for key, _, value in found]


def _rules(service: Service) -> Iterator[str]:
    policy: Any = service.policy
    for domain, tree in policy.limits.items() if policy is not None else ():
        for _, limit in limits_of(tree):
            yield f"{domain}.{limit.label}: {_rule(limit)}"


def _rule(limit: Limit) -> str:
    """A rule as envoyproxy/ratelimit prints it; what it does not know stands behind."""
    unit = limit.unit.name if limit.unit is not None else "UNKNOWN"
    requests = limit.windows[0].requests if limit.windows else 0
    flags = f"shadow_mode: {_go(limit.shadow)}, quota_mode: {_go(limit.quota)}"
    more = ", unlimited: true" if limit.unlimited else ""
    if not limit.unlimited and not limit.plain:
        windows = "; ".join(f"{w.algorithm} {w.requests} in {w.length}s" for w in limit.windows)
        more = f", windows: {windows}"
    return f"unit={unit} requests_per_unit={requests}, {flags}{more}"


def _go(flag: bool) -> str:
    return "true" if flag else "false"
