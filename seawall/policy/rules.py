"""Mistakes in rate-limit rules that one rule alone doesn't show, and who charges a limit.

Works on the `descriptors` of any tree, so that a policy's `limits` and a rule file of envoyproxy/ratelimit are held to
the same rules, which are those of its own loader (src/config/config_impl.go), and two of ours: rules that replace each
other are refused (sent together both would vanish), siblings `a_b` and (`a`, `b`) are two rules.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from seawall.policy import yaml11
from seawall.policy.checks import Checks
from seawall.policy.document import OUR_KEYS, Descriptor, LimitDomain, RateLimit, Replaced, Section, keys_of
from seawall.policy.mistake import Mistake, Path
from seawall.policy.rule_limits import is_true, limit_mistakes, text_of
from seawall.policy.rule_names import Names
from seawall.policy.tree import Items, Leaf, Node, Pairs, Plain, find

OUR_DOMAIN = "llm"
"""The domain that our Envoy configuration sends descriptors in."""
CHARGED_KEYS = ("tenant", "class", "key", "remote_address")
"""Entries that our Envoy configuration can send: from ext_authz's metadata, and the client's address."""
BODY_KEYS = frozenset({"model", "prompt_class"})
"""Entries that are known only once the body is read."""


Siblings = dict[tuple[str, str], tuple[Checks, Path]]


@dataclass(slots=True)
class Known:
    """What is known of one domain so far, over all files that have a part of it."""

    siblings: Siblings = field(default_factory=dict)
    """Rules of the first level, and where they stand."""
    names: Names = field(default_factory=Names)


def list_mistakes(checks: Checks) -> Iterator[Mistake]:
    """Check the policy's list `limits`."""
    limits = find(checks.root, ("limits",))
    if not isinstance(limits, Items):
        return
    domains: dict[str, Path] = {}
    for index, item in enumerate(limits.items):
        path: Path = ("limits", index)
        domain = text_of(item, "domain")
        if domain:
            first = domains.setdefault(domain, (*path, "domain"))
            if first != (*path, "domain"):
                yield checks.mistake((*path, "domain"), f"is the same domain as {checks.spot(first)}", text=domain)
        known = Known()
        yield from domain_mistakes(checks, item, path, known)
        yield from known.names.mistakes()


def domain_mistakes(
    checks: Checks, root: Node | None, path: Path, known: Known, *, strict: bool = False
) -> Iterator[Mistake]:
    """Check the rules of one domain, `root` being the mapping with `domain` and `descriptors`.

    `known` takes in what is found, for the next file of the domain. `strict` refuses the keys that are ours.
    """
    yield from _scalars(checks, root, path)
    yield from _Walk(checks, known, strict=strict, ours=text_of(root, "domain") == OUR_DOMAIN).level(
        root, path, known.siblings
    )


class _Walk:
    """Goes through the levels of one domain."""

    def __init__(self, checks: Checks, known: Known, *, strict: bool, ours: bool):
        self._checks = checks
        self._known = known
        self._strict = strict
        self._ours = ours

    def level(self, above: Node | None, path: Path, seen: Siblings) -> Iterator[Mistake]:
        descriptors = find(above, ("descriptors",))
        if not isinstance(descriptors, Items):
            return
        checks = self._checks
        for index, item in enumerate(descriptors.items):
            here: Path = (*path, "descriptors", index)
            key, value = text_of(item, "key"), text_of(item, "value") or ""
            if key:
                before, first = seen.setdefault((key, value), (checks, here))
                if (before, first) != (checks, here):
                    yield checks.mistake(here, f"has the key and value of {before.spot(first)}")
            if key in BODY_KEYS and self._ours:
                yield checks.mistake(
                    (*here, "key"),
                    "is known only from the body, and nothing in this release charges such a limit",
                    CHARGED_KEYS,
                    key,
                )
            if is_true(find(item, ("share_threshold",))) and "*" not in value and "*" not in (key or ""):
                yield checks.mistake((*here, "share_threshold"), "is for a key or value with '*' only", key=True)
            yield from self._limit(find(item, ("rate_limit",)), (*here, "rate_limit"))
            yield from self.level(item, here, {})

    def _limit(self, limit: Node | None, path: Path) -> Iterator[Mistake]:
        if not isinstance(limit, Pairs):
            return
        if self._strict:
            for key in OUR_KEYS:
                if key in limit.pairs:
                    allowed = [k for k in keys_of(RateLimit) if k not in OUR_KEYS]
                    yield self._checks.mistake((*path, key), "unknown key", allowed, key=True)
        yield from limit_mistakes(self._checks, limit, path)
        self._known.names.add(limit, self._checks, path)


_NO_TEXT = frozenset({"metadata", "requests_per_unit", "burst"})
"""Metadata is free, and what is wrong with a number `shape` says."""


def _scalars(checks: Checks, node: Node | None, path: Path) -> Iterator[Mistake]:
    """Numbers that its loader takes for floats, in whatever field they stand: it refuses the whole file."""
    if isinstance(node, Leaf):
        if isinstance(node.text, Plain) and node.text not in yaml11.NULLS and _is_fraction(node.text):
            yield checks.mistake(path, "is read as a number with a fraction", ["text in quotes"], node.text)
    elif isinstance(node, Items):
        for index, item in enumerate(node.items):
            yield from _scalars(checks, item, (*path, index))
    elif isinstance(node, Pairs):
        for name, (_, value) in node.pairs.items():
            if name not in _NO_TEXT:
                yield from _scalars(checks, value, (*path, name))


def _is_fraction(text: str) -> bool:
    whole = yaml11.integer(text)
    return yaml11.fraction(text) is not None or (whole is not None and whole > yaml11.LARGEST)


def misplaced(checks: Checks, root: Node | None) -> Iterator[Mistake]:
    """Warn of keys that are passed over: envoyproxy/ratelimit lets its keys stand on any level and reads some."""
    yield from _misplaced(checks, LimitDomain, root, ())


def _misplaced(checks: Checks, section: type[Section], node: Node | None, path: Path) -> Iterator[Mistake]:
    if not isinstance(node, Pairs):
        return
    known = keys_of(section)
    for name, (_, value) in node.pairs.items():
        here: Path = (*path, name)
        if name not in known and name in section.misplaced:
            yield checks.mistake(here, "means nothing on this level and is passed over", key=True)
        elif name in {"descriptors", "replaces"} and name in known and isinstance(value, Items):
            below = Descriptor if name == "descriptors" else Replaced
            for index, item in enumerate(value.items):
                yield from _misplaced(checks, below, item, (*here, index))
        elif name == "rate_limit" and name in known:
            yield from _misplaced(checks, RateLimit, value, here)


def who_charges(domain: str, keys: tuple[str, ...]) -> str:
    """Say who charges a limit whose descriptor has these keys."""
    if domain == OUR_DOMAIN and set(keys) <= set(CHARGED_KEYS):
        return "ratelimit"
    return f"ratelimit, if your Envoy sends the descriptor ({', '.join(keys)}) in domain '{domain}'"
