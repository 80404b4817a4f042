"""What differs, in words."""

import pytest

from seawall.policy.diff import differences
from seawall.policy.document import Document
from seawall.policy.load import load

A, B = "a" * 64, "b" * 64


def document(text: str) -> Document:
    return load(text).document


def limits(*rules: str, domain: str = "llm") -> str:
    return f"limits: [{{domain: {domain}, descriptors: [{', '.join(rules)}]}}]"


def rule(key: str, rate: str, value: str = "", below: str = "") -> str:
    number, unit = rate.split("/")
    return (
        f"{{key: {key}, value: '{value}', rate_limit: {{unit: {unit}, requests_per_unit: {number}}}, "
        f"descriptors: [{below}]}}"
    )


def tenants(text: str) -> str:
    return f"callers: {{tenants: {text}}}"


def key(id_: str, digest: str = A, expires: str = "") -> str:
    return f"{{id: {id_}, sha256: {digest}{f', expires: {expires}' if expires else ''}}}"


CASES = {
    "nothing": ("", "classes: {vip: , standard: , batch: }\noutput: {}\n# new\n", []),
    "a limit": (
        limits(rule("tenant", "600/minute", "acme")),
        limits(rule("tenant", "300/minute", "acme")),
        ["limits: tenant acme: requests 600/minute → 300/minute"],
    ),
    "another unit": (
        limits(rule("tenant", "6/second")),
        limits(rule("tenant", "6/minute")),
        ["limits: each tenant: requests 6/second → 6/minute (counted anew)"],
    ),
    "limits come and go": (
        limits(rule("tenant", "5/day"), rule("tenant", "1/day", "x")),
        limits(rule("tenant", "5/day", below=rule("class", "2/day", "vip"))),
        ["limits: tenant x: 1/day removed", "limits: each tenant, class vip: 2/day added [envoy]"],
    ),
    "all that a limit says": (
        limits(
            "{key: a, rate_limit: {unit: minute, requests_per_unit: 6}}",
            "{key: b, rate_limit: {unit: Minute, requests_per_unit: 6}}",
            "{key: c, rate_limit: {unit: minute, requests_per_unit: 6, name: n}}",
            "{key: d, rate_limit: {unlimited: true}}",
            "{key: e, rate_limit: {unit: day}}",
        ),
        limits(
            "{key: a, shadow_mode: yes, rate_limit: {unit: minute, requests_per_unit: 6, algorithm: gcra, burst: 2}}",
            "{key: b, rate_limit: {window: 60s, requests_per_unit: 6}}",
            "{key: c, metadata: {x: 1}, rate_limit: {window: 30s, requests_per_unit: 6, also: [{unit: day, hidden: y}]}}",
            "{key: d, rate_limit: {unlimited: true, replaces: [{name: n}]}}",
            "{key: e, rate_limit: {unit: day, at_limit: exhausted, charge_refused: no}}",
        ),
        [
            "limits: each a: requests 6/minute → 6/minute gcra burst 2, shadow_mode (counted anew)",
            "limits: each c: requests 6/minute, name n → 6/30s, also 0/day hidden, metadata {'x': 1} (counted anew)",
            "limits: each d: requests unlimited → unlimited, replaces n",
            "limits: each e: requests 0/day → 0/day, at limit exhausted, refused hits not charged",
        ],
    ),
    "order of wildcards": (
        limits(rule("tenant", "5/day", "a*"), rule("tenant", "6/day", "*"), rule("tenant", "7/day")),
        limits(rule("tenant", "7/day"), rule("tenant", "6/day", "*"), rule("tenant", "5/day", "a*")),
        ["limits: order of rules with '*': tenant *, tenant a*"],
    ),
    "another domain": (
        "",
        limits(rule("anything", "5/day"), domain="other"),
        ["limits: domain other: each anything: 5/day added"],
    ),
    "a rule that lets through": (
        limits(rule("tenant", "5/day")),
        limits(rule("tenant", "5/day"), "{key: tenant, value: free}"),
        ["limits: tenant free: no limit added"],
    ),
    "tenants": (
        tenants(f"{{a: {{keys: [{key('a1')}]}}, b: {{class: vip}}}}"),
        tenants(f"{{b: {{class: batch}}, c: {{keys: [{key('c1')}, {key('c2', B)}]}}}}"),
        [
            "callers: tenant a removed, with 1 key",
            "callers: tenant b: class vip → batch",
            "callers: tenant c added (class lowest, 2 keys)",
        ],
    ),
    "keys": (
        tenants(f"{{a: {{keys: [{key('k1')}, {key('k2', B)}]}}, b: }}"),
        tenants(f"{{a: {{keys: [{key('k3', 'c' * 64)}]}}, b: {{keys: [{key('k2', 'd' * 64, '2027-06-30')}]}}}}"),
        [
            "callers: key k1 removed (tenant a)",
            "callers: key k2 moved (tenant a → b)",
            "callers: key k2 replaced by another one (tenant b)",
            "callers: key k2: expires never → 2027-07-01 00:00Z",
            "callers: key k3 added (tenant a)",
        ],
    ),
    "callers": (
        "callers: {key_headers: [x-api-key, api-key], tenants: {a: }}",
        "callers: {key_headers: [api-key, x-api-key], anonymous: a, tenants: {a: }}",
        ["callers: anonymous deny → a", "callers: key_headers: order x-api-key, api-key → api-key, x-api-key"],
    ),
    "pools and engines": (
        "engines: {e: {url: 'http://a'}, f: {url: 'http://f'}}\n"  # noqa: ISC004
        "pools: {big: {engines: [e]}, old: }\nmodels: {m: {variants: {full: {pool: big}}}}",
        "engines: {e: {url: 'http://secret', kind: sglang}}\n"  # noqa: ISC004
        "pools: {big: {engines: [e], concurrency: {max: 64}}}\nmodels: {m: {variants: {full: {pool: big, name: n}}}}",
        [
            "engines: engine e: url changed [envoy]",
            "engines: engine e: kind vllm → sglang [envoy]",
            "engines: engine f removed [envoy]",
            "pools: pool big: concurrency.max 128 → 64",
            "pools: pool old removed [envoy]",
            "models: model m: variants.full.name none → n",
        ],
    ),
    "engines of a pool": (
        "engines: {e: {url: 'http://a'}, f: {url: 'http://f'}}\npools: {p: {engines: [e]}}",
        "engines: {e: {url: 'http://a'}, f: {url: 'http://f'}}\npools: {p: {engines: [e, f]}}",
        ["pools: pool p: engines: 'f' added [envoy]"],
    ),
    "classes": ("classes: {a: , b: }", "classes: {b: , a: }", ["classes: classes: order a, b → b, a"]),
    "a class": ("classes: {a: , b: }", "classes: {a: , c: }", ["classes: class b removed", "classes: class c added"]),
    "prefilter": (
        "prefilter: {user_agents: {deny: ['*x*']}, body: {max: 16KiB}}",
        "prefilter: {user_agents: {deny: ['*y*']}, body: {max: 1MiB, per_class: {vip: 1000}}, unknown_paths: pass}",
        [
            "prefilter: prefilter.user_agents.deny: '*y*' added",
            "prefilter: prefilter.user_agents.deny: '*x*' removed",
            "prefilter: prefilter.body.max 16KiB → 1MiB",
            "prefilter: prefilter.body.per_class.vip added (1000)",
            "prefilter: prefilter.unknown_paths deny → pass",
        ],
    ),
    "the rest": (
        "output: {max_tokens: 5}",
        "store_loss: {limits: deny}\nneeds: 0.1",
        [
            "needs: needs none → 0.1",
            "output: output.max_tokens 5 → none",
            "store_loss: store_loss.limits share → deny",
        ],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_differences(name: str) -> None:
    before, after, expected = CASES[name]
    found = differences(document(before), document(after))
    assert [f"{d.section}: {d.text}{' [envoy]' if d.envoy else ''}" for d in found] == expected
    assert not any(secret in d.text for d in found for secret in (A, B, "secret"))
    assert differences(document(after), document(after)) == []


def test_what_waits_for_promotion() -> None:
    found = differences(document(""), document("output: {max_tokens: 5}\npools: {p: }\nstore_loss: {limits: deny}"))
    assert [(d.section, d.waits) for d in found] == [("pools", True), ("output", False), ("store_loss", True)]
