"""What the simulated model says is a function of seed, prompt and choice."""

import pytest

from seawall.sim.generate import LONGEST, MODEL_LENGTH, SHORTEST, VOCABULARY, answer, count_tokens


def test_the_answer_is_known():
    """The same seed, prompt and choice give the same answer on every machine and Python."""
    one = answer(1, "hello")
    assert (one.length, one.finish) == (27, "stop")
    assert one.text().startswith("said out of cache at")


@pytest.mark.parametrize(("seed", "prompt", "choice"), [(2, "hello", 0), (1, "hello!", 0), (1, "hello", 1)])
def test_each_part_of_the_key_changes_the_answer(seed: int, prompt: str, choice: int):
    """Seed, prompt and choice all count."""
    assert answer(seed, prompt, choice).text() != answer(1, "hello").text()


def test_a_cap_cuts_and_does_not_change():
    """A capped answer is a beginning of the whole one and says so."""
    capped = answer(1, "hello", cap=5)
    assert (capped.length, capped.finish) == (5, "length")
    assert answer(1, "hello").text().startswith(capped.text())


def test_a_cap_that_is_not_reached_has_no_effect():
    """An answer that just fits ended by itself."""
    assert answer(1, "hello", cap=27) == answer(1, "hello", cap=1000) == answer(1, "hello")


@pytest.mark.parametrize(("cap", "length"), [(3, 3), (500, 500), (None, MODEL_LENGTH), (10**9, MODEL_LENGTH)])
def test_without_an_end_it_runs_to_the_cap(cap: int | None, length: int):
    """`ignore_eos` gives exactly the cap, the model's length at most."""
    endless = answer(1, "hello", cap=cap, ignore_eos=True)
    assert (endless.length, endless.finish) == (length, "length")


def test_answers_have_many_lengths_and_all_kinds_of_token():
    """Lengths spread over the whole range and every token of the vocabulary comes up."""
    answers = [answer(1, f"prompt {number}") for number in range(500)]
    assert {one.length for one in answers} == set(range(SHORTEST, LONGEST + 1))
    seen = {one.token(index) for one in answers for index in range(1, one.length)}
    assert seen == set(VOCABULARY)


@pytest.mark.parametrize(("text", "tokens"), [("", 0), ("a", 1), ("abcd", 1), ("abcde", 2), ("你好", 2), ("\ud83d", 1)])
def test_prompt_tokens_are_quarters_of_bytes(text: str, tokens: int):
    """Four bytes of UTF-8 are a token, the rest rounded up; half a surrogate pair counts too."""
    assert count_tokens(text) == tokens
