"""How a mistake is written."""

from seawall.policy.mistake import Mistake, PolicyError, listing, nearest, path_text, shown


def test_one_line() -> None:
    """Place, path, what is wrong, the nearest name and what is allowed, on one line."""
    mistake = Mistake("policy.yaml", 12, 7, "callers.tenants.acme.clas", None, "unknown key", "class, keys", "class")
    expected = "policy.yaml:12:7: callers.tenants.acme.clas: unknown key; did you mean 'class'? allowed: class, keys"
    assert str(mistake) == expected
    assert str(Mistake("p", 1, 1, "", "'x'", "is no y")) == "p:1:1: 'x' is no y"
    assert str(Mistake("p", 1, 1, "a", None, "is missing", "b")) == "p:1:1: a: is missing; allowed: b"


def test_order() -> None:
    """Mistakes stand in the order of the document."""
    error = PolicyError([Mistake("p", 9, 1, "", None, "b"), Mistake("p", 1, 5, "", None, "a")])
    assert str(error) == "p:1:5: a\np:9:1: b"


def test_text_is_bounded() -> None:
    """An author's text can't fill a screen or steer a terminal."""
    assert shown("a\x1b[31m") == r"'a\x1b[31m'"
    assert len(shown("x" * 5000)) < 90
    assert path_text(("limits", 0, "a.b", "c\n")) == r"limits[0].'a.b'.'c\n'"
    assert listing(str(i) for i in range(100)).endswith("15 and 84 more")


def test_nearest() -> None:
    """The nearest name ignores case, and nothing is guessed from afar."""
    assert nearest("CLAS", ["class", "keys"]) == "class"
    assert nearest("zzz", ["class", "keys"]) is None
    assert nearest("x" * 100_000, ["class"]) is None
