"""Cases in tests/cases/ratelimit: how they are read, and how an answer is held against them."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import yaml

from seawall.limits.window import Unit

ROOT = Path(__file__).parents[1] / "cases" / "ratelimit"
CALLS = (
    *("counting", "hits", "local_cache", "matching", "modes", "override", "response", "statistics", "wildcard"),
    "windows",
)
UNLIMITED = 4294967295


class Refused(Exception):
    """An RPC error; `code` is its name."""

    def __init__(self, code: str, message: str):
        super().__init__(message)
        self.code = code


@dataclass
class Told:
    """An answer in plain values; each status is a dict with `code`, `limit`, `unit`, `name`, `remaining`, `reset`.

    `limit` is None where the answer has no current_limit.
    """

    code: str
    statuses: list[dict[str, Any]]
    headers: dict[str, str] = field(default_factory=dict)
    metadata: dict[str, Any] | None = None


class Server(Protocol):
    """What the cases are run against: the pure core, or a process."""

    now: float

    def load(self, files: Mapping[str, str]) -> bool:
        """Put a whole new set of rule files in place; whether it was taken."""

    def call(self, domain: str, descriptors: list[dict[str, Any]], hits: int) -> Told:
        """One ShouldRateLimit; raises Refused."""

    def stats(self) -> Mapping[str, int]:
        """Statistics by their full names."""

    def keys(self) -> Mapping[bytes, int]:
        """Counters in the store, by their keys."""


def read(name: str) -> list[dict[str, Any]]:
    """Cases of one file."""
    loaded: list[dict[str, Any]] = yaml.safe_load((ROOT / f"{name}.yaml").read_text("utf-8"))
    return loaded


def fixtures() -> dict[str, str]:
    """Rule files by name."""
    loaded: dict[str, str] = yaml.safe_load((ROOT / "fixtures.yaml").read_text("utf-8"))
    return loaded


def filled(value: Any, fresh: Mapping[str, str]) -> Any:
    """Put fresh values in the place of `$r` and `$R`."""
    if isinstance(value, str):
        for name, text in fresh.items():
            value = value.replace(name, text)
        return value
    if isinstance(value, list):
        return [filled(item, fresh) for item in value]
    if isinstance(value, dict):
        return {filled(k, fresh): filled(v, fresh) for k, v in value.items()}
    return value


def run_calls(server: Server, calls: list[dict[str, Any]], domain: str) -> None:
    """Make the calls in order and hold each answer against what is expected."""
    for call in calls:
        if "parallel" in call:
            told = [once(server, call, domain) for _ in range(call["parallel"])]
            assert sum(t.code == "OK" for t in told if isinstance(t, Told)) == call["expect"]["ok_count"]
            continue
        for turn in range(call.get("repeat", 1)):
            compare(call["expect"], once(server, call, domain), turn, server.now)


def run_case(server: Server, case: dict[str, Any]) -> None:
    """Make all calls of a case, and hold the change of its statistics against what is expected."""
    for call in case.get("prepare", []):
        once(server, call, case["domain"])
    before = server.stats()
    run_calls(server, case["calls"], case["domain"])
    after = server.stats()
    wanted = dict(statistics(case.get("stats", {})))
    assert {name: after.get(name, 0) - before.get(name, 0) for name in wanted} == wanted


def once(server: Server, call: dict[str, Any], domain: str) -> Told | Refused:
    """Make one call."""
    try:
        return server.call(call.get("domain", domain), call["descriptors"], call.get("hits_addend", 0))
    except Refused as refused:
        return refused


def compare(expect: dict[str, Any], told: Told | Refused, turn: int, now: float) -> None:
    """Hold one answer against what is expected of it."""
    if expect.get("any"):
        return
    if "error" in expect:
        assert isinstance(told, Refused), told
        codes = expect["error"] if isinstance(expect["error"], list) else [expect["error"]]
        assert told.code in codes
        assert expect.get("message", "") in str(told)
        return
    assert isinstance(told, Told), told
    if "code" in expect:
        assert told.code == expect["code"]
    if "statuses" in expect:
        wanted = [status(want, turn, now) for want in expect["statuses"]]
        # A case that leaves a member of a status out does not mind it.
        got = [{k: s[k] for k in want} for want, s in zip(wanted, told.statuses, strict=True)]
        assert got == wanted
    if "headers" in expect:
        assert told.headers == {
            k: v.replace("<reset-minute>", str(left(60, now))) for k, v in expect["headers"].items()
        }
    if "metadata" in expect:
        assert squeezed(told.metadata) == squeezed(expect["metadata"])
    if "metadata_field" in expect:
        assert told.metadata is not None
        assert told.metadata.get("metadata") == expect["metadata_field"]


def status(want: Any, turn: int, now: float) -> dict[str, Any]:
    """Write a status out in full."""
    if isinstance(want, str):
        return {"code": "OK", "limit": None, "remaining": UNLIMITED if want == "unlimited" else 0, "reset": None}
    full = {"name": "", **want}
    if "reset" not in full:
        full["reset"] = left(Unit[full["unit"]].seconds, now)
    if isinstance(full.get("remaining"), dict):
        full["remaining"] = max(0, full["remaining"]["start"] + turn * full["remaining"]["step"])
    return full


def left(length: int, now: float) -> int:
    """Whole seconds until the running window ends."""
    return length - int(now) % length


def squeezed(value: Any) -> Any:
    """Drop white space of the text form of a limit, which the reference spreads at random."""
    if isinstance(value, dict):
        return {k: re.sub(r"\s+", " ", v) if k == "limit" else squeezed(v) for k, v in value.items()}
    return [squeezed(v) for v in value] if isinstance(value, list) else value


def starts(text: str, now: float) -> str:
    """Put the starts of the running windows in the place of `<minute>` and the others."""
    for unit in Unit:
        text = text.replace(f"<{unit.name.lower()}>", str(int(now) - int(now) % unit.seconds))
    return text


def statistics(changes: Mapping[str, int]) -> Iterator[tuple[str, int]]:
    """Expected changes by full names."""
    for name, change in changes.items():
        yield name if name.startswith("ratelimit") else f"ratelimit.service.rate_limit.{name}", change
