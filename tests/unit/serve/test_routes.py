"""Settings of routes, read once and told once."""

import pytest

from seawall.policy.compile import compile_policy
from seawall.policy.compiled import Profile
from seawall.policy.route import OWN
from seawall.serve import routes as module
from seawall.serve.routes import MOST_POLICIES, MOST_ROUTES, Routes
from seawall.telemetry.metrics import Metrics

POLICY = compile_policy("")


class Told:
    """A log that keeps what it is given."""

    def __init__(self) -> None:
        self.lines: list[dict[str, object]] = []

    def __call__(self, level: str, msg: str, **fields: object) -> None:
        self.lines.append({"level": level, "msg": msg, **fields})


def made() -> tuple[Routes, Metrics, Told]:
    metrics, log = Metrics(), Told()
    return Routes("ext_proc", 2**20, metrics, log), metrics, log  # type: ignore[arg-type]


def refused(metrics: Metrics) -> dict[str, int]:
    counters = metrics.snapshot()["counters"]
    return {labels[0]: n for name, labels, n in counters if name == "seawall_route_settings_refused_total"}


def test_a_route_that_says_nothing_has_the_policys_own() -> None:
    """Other people's keys are passed over."""
    routes, metrics, _ = made()
    assert routes.of(POLICY, []) is OWN
    assert routes.of(POLICY, {"content-type": "application/grpc", "other.key": "x"}.items()) is OWN
    assert not refused(metrics)


def test_values_are_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same values of the same policy are looked up; another policy is asked again."""
    calls = []
    real = module.route_of
    monkeypatch.setattr(module, "route_of", lambda *given: calls.append(given) or real(*given))
    routes, _, _ = made()
    said = {"seawall.class": "vip", "te": "trailers"}
    assert [routes.of(POLICY, said.items()) for _ in range(3)] == [Profile(class_="vip")] * 3
    assert len(calls) == 1
    routes.of(compile_policy(""), said.items())
    assert len(calls) == 2


def test_what_is_wrong_is_counted_each_time_and_logged_once() -> None:
    """Metrics show how many requests it costs, the log why."""
    routes, metrics, log = made()
    for _ in range(3):
        assert routes.of(POLICY, {"seawall.class": "gold", "seawall.boddy": "1"}.items()) is not None
    assert refused(metrics) == {"class": 3, "unknown": 3}
    told = {line["setting"]: line["why"] for line in log.lines}
    assert len(log.lines) == len(told) == 2
    assert told["class"] == "the policy has no class 'gold'"
    assert log.lines[0]["service"] == "ext_proc"


def test_nothing_grows_with_what_is_sent() -> None:
    """Neither many values nor many policies fill the memory or the log."""
    routes, _, log = made()
    for number in range(3 * MOST_ROUTES):
        routes.of(POLICY, [("seawall.class", str(number))])
    assert len(log.lines) == MOST_ROUTES
    for _ in range(2 * MOST_POLICIES):
        routes.of(compile_policy(""), [("seawall.class", "vip")])
    assert len(routes._known) == MOST_POLICIES
    assert all(len(known) <= MOST_ROUTES for _, known in routes._known)
