"""Documents in tests/cases/policy: the valid ones compile, the invalid ones have exactly the mistakes they list."""

from pathlib import Path

import pytest

from seawall.policy.compile import compile_policy
from seawall.policy.load import load
from seawall.policy.mistake import PolicyError

ROOT = Path(__file__).parents[3]
CASES = ROOT / "tests" / "cases" / "policy"
VALID = sorted((CASES / "valid").glob("*.yaml"))
INVALID = sorted((CASES / "invalid").glob("*.yaml"))


def lines_of(path: Path) -> tuple[str, list[str]]:
    """Text of an invalid document, and the mistakes that its `#! ` lines expect."""
    lines = path.read_text().splitlines(keepends=True)
    text = "".join(line for line in lines if not line.startswith("#! "))
    return text, [path.name + ":" + line[3:].rstrip("\n") for line in lines if line.startswith("#! ")]


@pytest.mark.parametrize("path", VALID, ids=lambda p: p.stem)
def test_valid(path: Path) -> None:
    """A valid document compiles, with and without engines from the settings."""
    text = path.read_text()
    assert compile_policy(text).pools
    assert compile_policy(text, upstreams=[("http://127.0.0.1:8000", "vllm")]).pools


@pytest.mark.parametrize("path", INVALID, ids=lambda p: p.stem)
def test_invalid(path: Path) -> None:
    """An invalid document is refused with all its mistakes at their places, in the document's order."""
    text, expected = lines_of(path)
    assert expected
    with pytest.raises(PolicyError) as refused:
        load(text, file=path.name)
    assert str(refused.value).splitlines() == expected


@pytest.mark.parametrize("path", INVALID, ids=lambda p: p.stem)
def test_no_secret_is_repeated(path: Path) -> None:
    """No mistake repeats a key or a password, however misplaced."""
    with pytest.raises(PolicyError) as refused:
        load(lines_of(path)[0], file=path.name)
    shown = str(refused.value) + repr([m.as_dict() for m in refused.value.mistakes])
    for secret in ("sk-live", "hunter2", "9f86d081", "9F86D081"):
        assert secret not in shown


def test_example() -> None:
    """The demo policy compiles, one tenant and key for each class."""
    policy = compile_policy((ROOT / "examples" / "policy.yaml").read_text())
    for class_ in ("vip", "standard", "batch"):
        caller = policy.callers.identify({"authorization": f"Bearer sk-demo-{class_}"}, 0.0)
        assert caller == type(caller)(f"demo-{class_}", class_, f"demo-{class_}")
    assert policy.output.cap("vip") == 4096
    assert policy.prefilter.body_cap("vip") == 16 * 1024
    assert policy.prefilter.agents.denied(None)
    assert policy.prefilter.agents.denied("sqlmap/1.7")
    assert not policy.prefilter.agents.denied("curl/8")
