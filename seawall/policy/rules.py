"""Mistakes in rate-limit rules that one rule alone doesn't show, and who charges a limit.

Works on the `descriptors` of any tree, so that a policy's `limits` and a rule file of envoyproxy/ratelimit are held to
the same rules, which are those of its own loader (src/config/config_impl.go, loadDescriptors).
"""

from collections.abc import Iterator

from seawall.policy.checks import Checks
from seawall.policy.mistake import Mistake, Path
from seawall.policy.tree import Items, Leaf, Node, find

OUR_DOMAIN = "llm"
"""The domain that our Envoy configuration sends descriptors in."""
CHARGED_KEYS = ("tenant", "class", "key", "remote_address")
"""Entries that our Envoy configuration can send: from ext_authz's metadata, and the client's address."""
BODY_KEYS = frozenset({"model", "prompt_class"})
"""Entries that are known only once the body is read."""


def list_mistakes(checks: Checks) -> Iterator[Mistake]:
    """Check the policy's list `limits`."""
    limits = find(checks.root, ("limits",))
    if not isinstance(limits, Items):
        return
    domains: dict[str, Path] = {}
    for index, item in enumerate(limits.items):
        path: Path = ("limits", index)
        domain = _text(item, "domain")
        if domain:
            first = domains.setdefault(domain, (*path, "domain"))
            if first != (*path, "domain"):
                yield checks.mistake((*path, "domain"), f"is the same domain as {checks.spot(first)}", text=domain)
        yield from domain_mistakes(checks, item, path)


def domain_mistakes(checks: Checks, root: Node | None, path: Path = ()) -> Iterator[Mistake]:
    """Check the rules of one domain, `root` being the mapping with `domain` and `descriptors`."""
    yield from _level(checks, root, path, ours=_text(root, "domain") == OUR_DOMAIN)


def _level(checks: Checks, above: Node | None, path: Path, *, ours: bool) -> Iterator[Mistake]:
    descriptors = find(above, ("descriptors",))
    if not isinstance(descriptors, Items):
        return
    seen: dict[tuple[str, str], Path] = {}
    for index, item in enumerate(descriptors.items):
        here: Path = (*path, "descriptors", index)
        key = _text(item, "key")
        if key:
            first = seen.setdefault((key, _text(item, "value") or ""), here)
            if first != here:
                yield checks.mistake(here, f"has the key and value of {checks.spot(first)}")
        if key in BODY_KEYS and ours:
            yield checks.mistake(
                (*here, "key"),
                "is known only from the body, and nothing in this release charges such a limit",
                CHARGED_KEYS,
                key,
            )
        yield from _level(checks, item, here, ours=ours)


def _text(node: Node | None, name: str) -> str | None:
    leaf = find(node, (name,))
    return leaf.text if isinstance(leaf, Leaf) else None


def who_charges(domain: str, keys: tuple[str, ...]) -> str:
    """Say who charges a limit whose descriptor has these keys."""
    if domain == OUR_DOMAIN and set(keys) <= set(CHARGED_KEYS):
        return "ratelimit"
    return f"ratelimit, if your Envoy sends the descriptor ({', '.join(keys)}) in domain '{domain}'"
