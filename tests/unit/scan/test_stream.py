"""Rules over streams: the same as over the whole text, however it was cut, within the bounds of the wait."""

import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from seawall.scan import ruleset as module
from seawall.scan.mask import mask, mask_json
from seawall.scan.prefilter import Engine
from seawall.scan.rules import Hit, Rule
from seawall.scan.ruleset import RuleSet, compile_rules
from seawall.scan.stream import RETAINED, Hold, Piece, StreamScanner
from tests.unit.scan.patterns import ALPHABET, PATTERNS, spans
from tests.unit.scan.test_ruleset import of_the_dialect

ENGINES: tuple[Engine, ...] = ("hyperscan", "re2")
SLOW = settings(deadline=None, max_examples=300, suppress_health_check=list(HealthCheck))
CARD = Rule("card", builtin="payment_cards", action="mask", placeholder="[CARD]")


def run(rules: RuleSet, pieces: list[str], hold: Hold | None = None) -> tuple[str, list[Hit], list[Piece]]:
    """All that leaves, all hits, and each step; time stands still."""
    scanner = StreamScanner(rules, hold or Hold())
    steps = [scanner.feed(piece, 0.0) for piece in pieces]
    steps.append(scanner.finish(0.0))
    assert scanner.held == 0 or steps[-1].blocked is not None or scanner.due is None
    return "".join(step.text for step in steps), [hit for step in steps for hit in step.hits], steps


def cut(text: str, sizes: list[int]) -> list[str]:
    """Cut a text into pieces of these sizes, over and over."""
    pieces, at, turn = [], 0, 0
    while at < len(text):
        pieces.append(text[at : at + sizes[turn % len(sizes)]])
        at += sizes[turn % len(sizes)]
        turn += 1
    return pieces


@st.composite
def rule_sets(draw: st.DrawFn) -> RuleSet:
    patterns = of_the_dialect(draw(st.lists(PATTERNS, min_size=1, max_size=3)))
    rules = [
        Rule(
            f"r{i}",
            pattern=pattern,
            action=draw(st.sampled_from(["mask", "mask", "flag"])),
            normalise=draw(st.booleans()),
        )
        for i, pattern in enumerate(patterns)
    ]
    return compile_rules(rules, draw(st.sampled_from(ENGINES)))


@SLOW
@given(
    rule_sets(),
    st.text(alphabet=ALPHABET + "\u200b４", max_size=30),
    st.lists(st.integers(1, 6), min_size=1, max_size=30),
)
def test_a_stream_is_masked_as_the_whole_text(rules: RuleSet, text: str, sizes: list[int]) -> None:
    """For any cut of any text: what leaves is the masked text, and the hits are the same."""
    whole = rules.scan(text)
    out, hits, steps = run(rules, cut(text, sizes))
    assert not whole.faults
    assert not any(step.faults for step in steps)
    assert out == mask(text, whole.hits)
    assert sorted(map(repr, hits)) == sorted(map(repr, whole.hits))


@SLOW
@given(rule_sets(), st.text(alphabet=ALPHABET, max_size=60), st.integers(1, 7))
def test_nothing_waits_for_longer_than_it_may(rules: RuleSet, text: str, size: int) -> None:
    """With the smallest bounds too, all text but what is masked leaves, and hits that are not late were masked whole."""
    hold = Hold(size=8, seconds=1.0)
    scanner = StreamScanner(rules, hold)
    out, hits = "", []
    for now, piece in enumerate(cut(text, [size])):
        step = scanner.feed(piece, now / 2)
        out, hits = out + step.text, [*hits, *step.hits]
        waiting = text[: now * size + len(piece)][-scanner.held :] if scanner.held else ""
        assert len(waiting.encode()) <= hold.size
        assert scanner.due is None or scanner.due > now / 2
    last = scanner.finish(0.0)
    out, hits = out + last.text, [*hits, *last.hits]
    assert scanner.held == 0
    if not hits:
        assert out == text


def test_a_secret_one_digit_at_a_time() -> None:
    """No digit of a card leaves before the verdict, and a near miss leaves unchanged."""
    rules = compile_rules([CARD])
    text = "Your card 4111 1111 1111 1111 is on file"
    out, hits, steps = run(rules, ["Your card ", *"4111 1111 1111 1111", " is on file"])
    assert out == "Your card [CARD] is on file"
    assert spans(hits) == [(10, 29)]
    assert [step.text for step in steps[1:20]] == [""] * 19
    assert not hits[0].late
    near = text.replace("4111", "5111")
    assert run(rules, list(near))[:2] == (near, [])


@pytest.mark.parametrize(
    "secret", ["AKIA" + "ABCDEFGHIJKLMNOP", "sk-" + "proj-abcdefghijklmnopqrst", "bob@example.org"]
)
def test_a_secret_in_twenty_pieces(secret: str) -> None:
    rules = compile_rules(
        [Rule("keys", builtin="api_keys", action="mask"), Rule("mail", builtin="emails", action="mask")]
    )
    out, hits, steps = run(rules, ["it is ", *secret, " now"])
    assert out == f"it is [{hits[0].rule.id}] now"
    assert all(step.text == "" for step in steps[1 : len(secret)])


def test_text_in_which_nothing_begins_leaves_at_once() -> None:
    scanner = StreamScanner(compile_rules([CARD]), Hold())
    pieces = ["Hello ", "wörld, ", "中文。", "a 4", "x "]
    assert [scanner.feed(piece, 0.0).text for piece in pieces] == ["Hello ", "wörld, ", "中文。", "a ", "4x "]
    assert scanner.held == 0
    assert scanner.due is None


def test_a_block_ends_the_stream_before_the_match() -> None:
    """What stands before it has left, nothing after it does, and later pieces give nothing."""
    rules = compile_rules(
        [Rule("card", builtin="payment_cards", action="block"), Rule("x", pattern="x", action="mask")]
    )
    scanner = StreamScanner(rules, Hold())
    steps = [scanner.feed(piece, 0.0) for piece in ("an x and ", "4111 1111 ", "1111 1111", " and an x")]
    assert "".join(step.text for step in steps) == "an [x] and "
    assert steps[-1].blocked == steps[-1].hits[0]
    assert [hit.rule.id for step in steps for hit in step.hits] == ["x", "card"]
    assert scanner.feed("more", 0.0) == Piece("")
    assert scanner.finish(0.0) == Piece("")
    assert scanner.due is None


def test_a_match_longer_than_the_hold_is_late() -> None:
    """What has left can't be taken back: the verdict comes when the match is complete, and says that it is late."""
    rules = compile_rules([Rule("key", pattern="BEGIN KEY .{1,3000} END KEY", action="block")])
    pieces = ["BEGIN KEY ", *["x" * 40] * 60, " END KEY ", "tail"]
    out, hits, steps = run(rules, pieces, Hold(size=512))
    assert [(hit.start, hit.end, hit.late) for hit in hits] == [(0, 2418, True)]
    assert steps[-2].blocked is None
    assert steps[61].blocked == hits[0]
    assert out == ("BEGIN KEY " + "x" * 2400)[: len(out)]
    assert len(out) >= 2410 - 512
    assert all(len(step.text) <= 552 for step in steps)


def test_a_match_that_goes_on_is_covered_as_it_comes() -> None:
    """A private key is known by its header: nothing of it leaves, however long it is and however little is held."""
    header, body, end = (
        "-----BEGIN RSA PRI" + "VATE KEY-----\n",
        ("A1b2" * 16 + "\n") * 100,
        "-----END RSA PRI" + "VATE KEY-----",
    )
    text = f"here: {header}{body}{end} done"
    rules = compile_rules([Rule("pem", builtin="private_keys", action="mask")])
    for sizes in ([1], [7], [64], [5000]):
        out, hits, _ = run(rules, cut(text, sizes), Hold(size=128))
        assert out == "here: [pem] done"
        assert [(hit.start, hit.end, hit.late) for hit in hits] == [(6, len(text) - 5, False)]


def test_a_token_that_goes_on_is_covered_as_it_comes() -> None:
    """Time runs out in the middle of it: its placeholder leaves once, its later characters never."""
    rules = compile_rules([Rule("key", pattern=r"sk-\w{8,}", action="mask")])
    scanner = StreamScanner(rules, Hold(seconds=1.0))
    assert scanner.feed("a sk-abcdefghij", 0.0).text == "a "
    assert scanner.due == 1.0
    assert scanner.flush(0.5) == Piece("")
    assert scanner.flush(1.0).text == "[key]"
    assert scanner.feed("klmno", 1.1).text == ""
    last = scanner.feed(" end ", 1.2)
    assert last.text == " end "
    assert [(hit.start, hit.end, hit.late) for hit in last.hits] == [(2, 20, False)]


def test_a_beginning_that_waits_for_too_long_leaves() -> None:
    """The stated price of the bound in time: a slow stream lets the first digits go, and what follows is masked late."""
    scanner = StreamScanner(compile_rules([CARD]), Hold(seconds=1.0))
    assert scanner.feed("4111 1111 ", 0.0).text == ""
    assert scanner.feed("1111 ", 0.6).text == ""
    assert scanner.flush(1.0).text == "4111 1111 "
    assert scanner.due == 1.6
    step = scanner.feed("1111 x", 1.1)
    assert step.text == "[CARD] x"
    assert [(hit.start, hit.end, hit.late) for hit in step.hits] == [(0, 19, True)]


def test_a_rule_that_only_flags_holds_nothing_back() -> None:
    rules = compile_rules([Rule("own", pattern="[一-龥]+的银行卡")])
    out, hits, steps = run(rules, list("这是李四的银行卡。"))
    assert [step.text for step in steps[:-1]] == list("这是李四的银行卡。")
    assert (spans(hits), hits[0].late) == ([(0, 8)], False)
    assert out == "这是李四的银行卡。"


def test_max_length_bounds_the_wait() -> None:
    """Text waits for a rule no longer than its matches may be."""
    scanner = StreamScanner(compile_rules([Rule("w", pattern=r"[a-z]+!", action="mask", max_length=5)]), Hold())
    assert scanner.feed("a" * 100, 0.0).text == "a" * 80
    assert (
        run(compile_rules([Rule("w", pattern=r"\b[a-z]+!", action="mask", max_length=5)]), list("abcdef! abc!"))[0]
        == "abcdef! [w]"
    )


def test_memory_of_a_stream_is_bounded() -> None:
    """A beginning without an end is forgotten, though it is told of while it is remembered."""
    rules = compile_rules([Rule("all", pattern=r"(?s)BEGIN.*END", action="mask")])
    scanner = StreamScanner(rules, Hold(size=64))
    out = "".join(scanner.feed("BEGIN " + "x" * 994, 0.0).text for _ in range(100))
    assert scanner.held <= 64
    assert len(scanner._text) <= RETAINED + 64
    assert len(out) == 100_000 - scanner.held


def test_halves_of_a_character_meet() -> None:
    """A surrogate pair cut between two events is one character; a lone half leaves as it is."""
    rules = compile_rules([Rule("x", pattern="x", action="mask")])
    assert run(rules, ["a\ud83d", "\ude00x", "\ud83d", "y\udc00"])[0] == "a😀[x]\ud83dy\udc00"
    assert run(rules, ["a\ud83d"])[0] == "a\ud83d"


def test_an_invisible_character_at_the_edge() -> None:
    """The character before a piece counts, though invisible ones stand between."""
    rules = compile_rules([Rule("n", pattern=r"\b123456\b", action="mask", normalise=True)])
    assert run(rules, ["x\u200b", "123456 123456"])[0] == "x\u200b123456 [n]"


def test_no_rules_let_all_pass() -> None:
    assert run(compile_rules([]), ["a\ud83d", "\ude00", "b"])[0] == "a😀b"


@pytest.mark.parametrize("on_error", ["open", "closed"])
def test_a_rule_that_fails_in_a_stream(on_error: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Open: told once, and the others go on. Closed: the stream is over."""

    def broken(text: str) -> bool:
        raise RuntimeError(text)

    monkeypatch.setitem(module.CHECKS, "luhn", broken)
    bad = Rule(
        "bad", pattern=r"\d+", check="luhn", on_error="closed" if on_error == "closed" else "open", action="mask"
    )
    out, _, steps = run(compile_rules([bad, Rule("x", pattern="x", action="mask")]), ["a ", "1 x", " 2 x ", "3"])
    faults = [fault for step in steps for fault in step.faults]
    assert [(fault.rule, fault.why) for fault in faults] == [(bad, "RuntimeError")]
    if on_error == "open":
        assert out == "a 1 [x] 2 [x] 3"
    else:
        assert out == "a "
        assert faults[0] in {step.blocked for step in steps}


@pytest.mark.parametrize("on_error", ["open", "closed"])
def test_a_scanner_that_fails_in_a_stream(on_error: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Open: all that was held leaves, and all that follows. Closed: nothing more does."""
    rules = compile_rules(
        [Rule("c", pattern="cd", action="mask", on_error="closed" if on_error == "closed" else "open")]
    )
    scanner = StreamScanner(rules, Hold())
    assert scanner.feed("abc", 0.0).text == "ab"
    monkeypatch.setattr(rules, "prefilter", None)
    step = scanner.feed("d", 0.0)
    assert [(fault.rule, fault.why, fault.closed) for fault in step.faults] == [
        (None, "AttributeError", on_error == "closed")
    ]
    after = step.text + scanner.feed("e", 0.0).text + scanner.finish(0.0).text
    assert (after, step.blocked is None) == (("cde", True) if on_error == "open" else ("", False))


MASKED = compile_rules([Rule("d", pattern=r"\d+", action="mask", placeholder='["]')])


@given(st.text(alphabet='a1"\\\n\u20ac😀/\x00中', max_size=20), st.booleans(), st.randoms())
def test_masking_inside_json(text: str, ascii_only: bool, random: object) -> None:
    """The JSON stays valid, means the masked text, and differs nowhere else."""
    content = json.dumps(text, ensure_ascii=ascii_only)[1:-1]
    masked = mask_json(content, MASKED.spans(text))
    assert json.loads(f'"{masked}"') == mask(text, MASKED.spans(text))
    if "1" not in text:
        assert masked == content


def test_masking_inside_json_keeps_other_escapes() -> None:
    r"""`\/` and `\u00e9` stay as they were written, though no encoder of ours would write them so."""
    content = r"\/\u00E9 12 \ud83d\uDE00 34 \ud83d 5\t"
    text = json.loads(f'"{content}"')
    assert mask_json(content, MASKED.spans(text)) == r"\/\u00E9 [\"] \ud83d\uDE00 [\"] \ud83d [\"]\t"
    with pytest.raises(ValueError, match="behind the string"):
        mask_json("1", MASKED.spans("a1"))
