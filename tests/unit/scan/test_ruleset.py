"""Rules over whole texts."""

import subprocess
import sys

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from seawall.scan import ruleset as module
from seawall.scan.dialect import Refused, parse
from seawall.scan.fold import Folded
from seawall.scan.mask import mask
from seawall.scan.prefilter import DEFAULT_ENGINE, Engine
from seawall.scan.rules import Rule, RuleError
from seawall.scan.ruleset import compile_rules
from seawall.scan.sides import compile_sides
from seawall.scan.stream import Hold
from tests.unit.scan.patterns import PATTERNS, TEXTS, by_python, spans

ENGINES: tuple[Engine, ...] = ("hyperscan", "re2")
SLOW = settings(deadline=None, max_examples=200, suppress_health_check=list(HealthCheck))


def of_the_dialect(patterns: list[str]) -> list[str]:
    def good(pattern: str) -> bool:
        try:
            parse(pattern)
        except Refused:
            return False
        return True

    return [pattern for pattern in patterns if good(pattern)]


@SLOW
@given(st.lists(PATTERNS, min_size=1, max_size=4), TEXTS, st.sampled_from(ENGINES))
def test_each_rule_finds_what_python_finds(patterns: list[str], text: str, engine: Engine) -> None:
    """However many rules there are, and whichever engine looks first."""
    rules = [Rule(f"r{i}", pattern=pattern) for i, pattern in enumerate(of_the_dialect(patterns))]
    found = compile_rules(rules, engine).scan(text)
    assert not found.faults
    for rule in rules:
        assert spans(hit for hit in found.hits if hit.rule is rule) == by_python(str(rule.pattern), text)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("count", [1, 1000])
def test_many_rules(engine: Engine, count: int) -> None:
    """A thousand rules compile, and the right one of them is found."""
    rules = [Rule(f"r{i}", pattern=rf"\bsecret{i:04d}[-_ ][a-z0-9]{{8,32}}\b") for i in range(count)]
    compiled = compile_rules(rules, engine)
    name = f"r{count // 2}"
    assert [hit.rule.id for hit in compiled.spans(f"密 secret{count // 2:04d}-abcdefgh, secret9999-abcdefgh")] == [name]


def test_a_machine_without_hyperscan() -> None:
    """Rules are compiled for RE2, and find the same."""
    code = (
        "import sys; sys.modules['hyperscan'] = None\n"
        "from seawall.scan.ruleset import compile_rules, Rule\n"
        "rules = compile_rules([Rule('a', builtin='emails')])\n"
        "assert rules.engine == 're2'\n"
        "assert [(h.start, h.end) for h in rules.spans('mail bob@example.org now')] == [(5, 20)]\n"
        "try: compile_rules([Rule('a', pattern='x')], 'hyperscan')\n"
        "except ValueError as e: print(e)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "hyperscan is not installed here\n"), done.stderr
    assert DEFAULT_ENGINE == "hyperscan"


def test_a_rule_that_normalises_sees_through_disguises() -> None:
    """Full-width digits, invisible characters, spaces and hyphens in numbers; and the spans are of the text as it is."""
    pattern = r"\bN[0-9]{6}\b"
    plain, through = (compile_rules([Rule("n", pattern=pattern, normalise=n)]) for n in (False, True))
    for text, found in {
        "N123456": "N123456",
        "是 Ｎ１２３４５６。": "Ｎ１２３４５６",
        "N12\u200b3\ufeff456 x": "N12\u200b3\ufeff456",
        "N123-456": "N123-456",
        "N12 34\u00a056": "N12 34\u00a056",
        "N٣٣٣٣٣٣": "N٣٣٣٣٣٣",
        "N12  3456": None,
    }.items():
        assert [text[h.start : h.end] for h in through.spans(text)] == ([] if found is None else [found]), text
        assert [text[h.start : h.end] for h in plain.spans(text)] == ([found] if text == "N123456" else []), text


def test_what_normalises_by_default() -> None:
    """Sets, and patterns of numbers with a check; other patterns mean what `re` says."""
    assert Rule("a", builtin="emails").normalises
    assert Rule("a", pattern="x", check="luhn").normalises
    assert not Rule("a", pattern="x").normalises
    assert not Rule("a", pattern="x", check="luhn", normalise=False).normalises
    text = "no 4111 1111 1111 1111"
    assert spans(compile_rules([Rule("a", pattern=r"\b\d{6,18}\b", check="luhn")]).spans(text)) == [(3, 22)]
    assert spans(compile_rules([Rule("a", pattern=r"\b\d{6,18}\b")]).spans(text)) == []


@given(st.text(alphabet="a1\u200b\ufeff４中\u00ad ", max_size=20))
def test_places_of_a_folded_text(text: str) -> None:
    """Each character that is kept is mapped back to where it stood."""
    folded = Folded(text)
    kept = [i for i, char in enumerate(text) if char not in "\u200b\ufeff\u00ad"]
    assert [folded.outside(i) for i in range(len(folded.text))] == kept
    assert [folded.inside(i) for i in kept] == list(range(len(kept)))
    assert [folded.end_outside(i) for i in range(1, len(folded.text) + 1)] == [i + 1 for i in kept]


def test_order_and_overlap() -> None:
    """By beginning, then the longest, then the order of the rules; what the first doesn't cover the next does."""
    rules = compile_rules(
        [
            Rule("ab", pattern="ab", action="mask"),
            Rule("abc", pattern="abc", action="mask"),
            Rule("cd", pattern="cd", action="mask", placeholder="#"),
            Rule("b", pattern="b"),
        ]
    )
    hits = rules.spans("xabcd")
    assert [(h.rule.id, h.start, h.end) for h in hits] == [("abc", 1, 4), ("ab", 1, 3), ("b", 2, 3), ("cd", 3, 5)]
    assert mask("xabcd", hits) == "x[abc]#"
    assert rules.scan("xabcd b").counts() == {"abc": 1, "ab": 1, "b": 2, "cd": 1}


def test_a_set_counts_once() -> None:
    """Two patterns of a set that find the same, or one inside the other, are one hit."""
    hits = compile_rules([Rule("k", builtin="payment_cards")]).spans("6222021234567890128 6222026006705354")
    assert len(hits) == len({(h.start, h.end) for h in hits})


def test_max_length() -> None:
    """A longer match is none."""
    rules = compile_rules([Rule("a", pattern=r"a+", max_length=3)])
    assert spans(rules.spans("aaaa aaa a")) == [(5, 8), (9, 10)]


def test_what_blocks() -> None:
    rules = compile_rules([Rule("m", pattern="a", action="mask"), Rule("b", pattern="b", action="block")])
    assert rules.scan("a").blocks is None
    blocked = rules.scan("ab").blocks
    assert blocked is not None
    assert blocked.rule is not None
    assert blocked.rule.id == "b"


def test_a_lone_surrogate_is_a_character() -> None:
    text = "a\ud83dbob@example.org\udc00"
    assert spans(compile_rules([Rule("e", builtin="emails")]).spans(text)) == [(2, 17)]


@pytest.mark.parametrize("on_error", ["open", "closed"])
def test_a_rule_that_fails(on_error: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its fault is a value that tells nothing of the text; the other rules still count."""

    def broken(text: str) -> bool:
        raise RuntimeError(text)

    monkeypatch.setitem(module.CHECKS, "luhn", broken)
    bad = Rule("bad", pattern=r"\d+", check="luhn", on_error="closed" if on_error == "closed" else "open")
    found = compile_rules([bad, Rule("good", pattern="x+")]).scan("secret 4111 xx")
    assert [hit.rule.id for hit in found.hits] == ["good"]
    (fault,) = found.faults
    assert (fault.rule, fault.why, fault.closed) == (bad, "RuntimeError", on_error == "closed")
    assert (found.blocks is fault) is (on_error == "closed")
    assert "4111" not in repr(fault)


def test_too_much_work_is_a_fault() -> None:
    rule = Rule("slow", pattern="a[^b]*b|a", on_error="closed")
    found = compile_rules([rule]).scan("a" * 100_000)
    assert found.blocks is not None
    assert [fault.why for fault in found.faults] == ["looks at the text over and over"]


def test_a_scanner_that_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing could be looked for: one fault for all rules, closed if one of them closes."""
    for on_error, closed in (("open", False), ("closed", True)):
        rules = compile_rules([Rule("a", pattern="a"), Rule("b", pattern="b", on_error=on_error)])
        monkeypatch.setattr(rules, "prefilter", None)
        (fault,) = rules.scan("ab").faults
        assert (fault.rule, fault.closed) == (None, closed)


@pytest.mark.parametrize(
    ("rule", "why"),
    [
        (Rule("x", pattern="a(?=b)"), "rule 'x': look-around is beyond the dialect at position 1"),
        (Rule("x", builtin="nothing"), "rule 'x': no set is called 'nothing'"),
    ],
)
def test_rules_that_cannot_be(rule: Rule, why: str) -> None:
    with pytest.raises(RuleError) as refused:
        compile_rules([rule])
    assert str(refused.value) == why


def test_sides() -> None:
    """Each side has its rules; the same rules are compiled once."""
    both, one = Rule("a", pattern="a"), Rule("b", pattern="b", on=("request",))
    same = compile_sides([both], Hold())
    assert same.request is same.response
    apart = compile_sides([both, one], Hold())
    assert apart.request is not None
    assert apart.response is not None
    assert (len(apart.request.rules), len(apart.response.rules)) == (2, 1)
    assert compile_sides([one], Hold()).stream() is None
    assert compile_sides([], Hold()).request is None


def test_rules_that_may_come_late() -> None:
    """Those that mask or block, and may need more text than is held until they know."""
    rules = [
        Rule("key", pattern="BEGIN KEY .{1,3000} END KEY", action="block"),
        Rule("short", pattern="a{1,100}b", action="mask"),
        Rule("grows", pattern="sk-[a-z]{20,}", action="mask"),
        Rule("cut", pattern="a+b", action="mask", max_length=50),
        Rule("endless", pattern="a+b", action="mask"),
        Rule("flag", pattern="a+b"),
    ]
    assert compile_sides(rules, Hold(512)).late() == [("key", 12072), ("endless", None)]
