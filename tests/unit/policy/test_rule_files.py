"""Rule files of envoyproxy/ratelimit: a set of files is taken whole or refused whole."""

import pytest

from seawall.limits.descriptor import Limit, match
from seawall.limits.window import Algorithm, Window
from seawall.policy.mistake import PolicyError
from seawall.policy.rule_files import RuleSet, compile_rule_files

GOOD = "domain: a\ndescriptors:\n- {key: k, value: 007, rate_limit: {unit: SECOND, requests_per_unit: 1}}\n"
RATE = "rate_limit: {unit: minute, requests_per_unit: 1}"


def rules(*descriptors: str, domain: str = "d") -> str:
    return f"domain: {domain}\ndescriptors:\n" + "".join(f"- {{{d}}}\n" for d in descriptors)


def refusals(*files: tuple[str, str], merge: bool = False, strict: bool = False) -> list[str]:
    with pytest.raises(PolicyError) as refused:
        compile_rule_files(files, merge=merge, strict=strict)
    return str(refused.value).splitlines()


def the_limit(rules: RuleSet, *entries: tuple[str, str], domain: str = "d") -> Limit:
    found = match(rules.limits[domain], list(entries))
    assert found is not None
    return found.limit


def test_a_set() -> None:
    """A tree a domain; one bad file refuses the set, with the mistakes of all files."""
    found = compile_rule_files([("b.yaml", "domain: b"), ("a.yaml", GOOD)])
    assert set(found.limits) == {"a", "b"}
    assert the_limit(found, ("k", "007"), domain="a").requests_per_unit == 1
    assert [line.split(": ", 1)[0] for line in refusals(("a", GOOD), ("b", GOOD), ("c", ""), ("d", "["))] == [
        "b:1:9",
        "c:1:1",
        "d:2:1",
    ]
    assert compile_rule_files([]).limits == {}


def test_merged_in_the_order_of_names() -> None:
    """Of overlapping wildcards the one in the first file wins, in whatever order the files come."""
    one, two = rules(f"key: k, value: a*, {RATE}"), rules("key: k, value: '*', rate_limit: {unit: day}")
    for files in ([("1.yaml", one), ("2.yaml", two)], [("2.yaml", two), ("1.yaml", one)]):
        assert the_limit(compile_rule_files(files, merge=True), ("k", "ab")).label == "k_a*"
    assert the_limit(compile_rule_files([("2.yaml", one), ("1.yaml", two)], merge=True), ("k", "ab")).label == "k_*"


def test_duplicates_over_files() -> None:
    """A rule stands once in a domain, whatever file it is in; both places are named."""
    assert refusals(
        ("1", rules(f"key: k, {RATE}")), ("2", rules(f"key: j, {RATE}", f"key: k, {RATE}")), merge=True
    ) == ["2:4:3: descriptors[1]: has the key and value of descriptors[0] (1:3:3)"]


def test_circles_over_files() -> None:
    """Rules that replace each other are refused, also over files; a chain is fine."""
    x = "key: x, rate_limit: {unit: day, name: x, replaces: [{name: y}]}"
    y = "key: y, rate_limit: {unit: day, name: y, replaces: [{name: x}]}"
    [line] = refusals(("1", rules(x)), ("2", rules(y)), merge=True)
    assert line == (
        "1:3:63: descriptors[0].rate_limit.replaces[0].name: closes a circle of rules that replace each other: "
        "'x' → 'y' → 'x'"
    )
    chain = rules(
        x, "key: y, rate_limit: {unit: day, name: y, replaces: [{name: z}]}", "key: z, rate_limit: {unit: day}"
    )
    assert the_limit(compile_rule_files([("1", chain)]), ("x", "")).replaces == {"y"}


def test_strict() -> None:
    """Our own keys are unknown keys then, as for the Go service."""
    file = rules("key: k, rate_limit: {unit: day, algorithm: sliding, also: [{unit: hour}]}")
    assert compile_rule_files([("1", file)]).limits
    assert [line.split("; ")[0] for line in refusals(("1", file), strict=True)] == [
        "1:3:36: descriptors[0].rate_limit.algorithm: unknown key",
        "1:3:56: descriptors[0].rate_limit.also: unknown key",
    ]


def test_what_is_passed_over() -> None:
    """A key on the wrong level or given twice and a second document are passed over, as there, and told."""
    text = (
        "name: x\ndomain: d\nunit: minute\ndescriptors:\n"
        f"- {{key: k, name: y, value: a, value: b, {RATE}}}\n"
        "- {key: j, rate_limit: {unit: day, key: x, replaces: [{name: n, value: v}]}}\n"
        "---\ndomain: [broken\n"
    )
    found = compile_rule_files([("f", text)])
    assert the_limit(found, ("k", "b")).label == "k_b"
    assert sorted(str(w) for w in found.warnings) == [
        "f:1:1: name: means nothing on this level and is passed over",
        "f:3:1: unit: means nothing on this level and is passed over",
        "f:5:12: descriptors[0].name: means nothing on this level and is passed over",
        "f:5:21: descriptors[0].value: key 'value' is given twice; the last counts",
        "f:6:36: descriptors[1].rate_limit.key: means nothing on this level and is passed over",
        "f:6:65: descriptors[1].rate_limit.replaces[0].value: means nothing on this level and is passed over",
        "f:7:1: only the first document of a file counts; the rest is not read",
    ]


def test_tags_that_say_the_obvious() -> None:
    """`!!int "5"` is 5 and `!!str 5` is text, as for the Go service; other tags are refused."""
    file = rules("key: !!str 5, rate_limit: {unit: day, requests_per_unit: !!int '5'}")
    assert the_limit(compile_rule_files([("1", file)]), ("5", "x")).requests_per_unit == 5
    assert "tag" in refusals(("1", rules("key: k, metadata: {a: !!binary aGk=}")))[0]


def test_metadata() -> None:
    """A free tree: scalars as YAML 1.1 reads them, keys as they are written."""
    metadata = "{y: on, 5: 0x10, n: {a: [1, two, 1.5, ~]}, q: '007', d: 2026-01-02}"
    found = compile_rule_files([("1", rules(f"key: k, {RATE}, metadata: {metadata}"))])
    assert the_limit(found, ("k", "")).metadata == {
        "y": True,
        "5": 16,
        "n": {"a": [1, "two", 1.5, None]},
        "q": "007",
        "d": "2026-01-02",
    }


def test_windows() -> None:
    """What a limit counts by; what the Go service knows is charged in full, what is ours only when admitted."""
    file = rules(
        f"key: plain, {RATE}",
        "key: sliding, rate_limit: {window: 30s, requests_per_unit: 3, algorithm: sliding}",
        "key: gcra, rate_limit: {unit: minute, requests_per_unit: 60, algorithm: gcra, burst: 5, charge_refused: yes}",
        "key: full, rate_limit: {unit: minute, requests_per_unit: 60, algorithm: gcra, at_limit: exhausted}",
        "key: two, rate_limit: {unit: minute, requests_per_unit: 3, also: [{unit: day, requests_per_unit: 9, hidden: y}]}",
        "key: sparing, rate_limit: {unit: minute, requests_per_unit: 3, charge_refused: no}",
    )
    found = compile_rule_files([("1", file)])
    told = {
        key: (limit.windows, limit.charge_refused, limit.exhausted, limit.plain)
        for key in ("plain", "sliding", "gcra", "full", "two", "sparing")
        for limit in [the_limit(found, (key, "x"))]
    }
    fixed, gcra = Algorithm.FIXED, Algorithm.GCRA
    assert told == {
        "plain": ((Window(fixed, 1, 60),), True, False, True),
        "sliding": ((Window(Algorithm.SLIDING, 3, 30),), False, False, False),
        "gcra": ((Window(gcra, 60, 60, 5),), True, False, False),
        "full": ((Window(gcra, 60, 60, 60),), False, True, False),
        "two": ((Window(fixed, 3, 60), Window(fixed, 9, 86400, hidden=True)), False, False, False),
        "sparing": ((Window(fixed, 3, 60),), False, False, False),
    }
