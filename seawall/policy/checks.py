"""What a model of one section can't see: names that refer to another place, things given twice, bounds from settings.

These look at the tree rather than at the models, so that they are reported together with mistakes of shape, however
broken the rest is. What has the wrong shape is passed over here: `shape` has said so.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence

import re2

from seawall.policy import notation
from seawall.policy.document import DEFAULT_CLASSES
from seawall.policy.mistake import Mistake, Path, listing, nearest, path_text, shown, spot
from seawall.policy.tree import Items, Leaf, Node, Pairs, find, place, select

DENY = "deny"
DEFAULT_POOL = "default"
_NO_DEFAULT = "is missing: no pool is the default"

# (where a name is used, whether it is the key there, which names are known, what such a name is called)
_REFERENCES: tuple[tuple[tuple[str, ...], bool, str, str], ...] = (
    (("callers", "anonymous"), False, "tenants", "tenant"),
    (("callers", "tenants", "*", "class"), False, "classes", "class"),
    (("prefilter", "body", "per_class", "*"), True, "classes", "class"),
    (("output", "per_class", "*"), True, "classes", "class"),
    (("profiles", "*", "class"), False, "classes", "class"),
    (("pools", "*", "engines", "*"), False, "engines", "engine"),
    (("models", "*", "variants", "*", "pool"), False, "pools", "pool"),
)


class Checks:
    """Looks at one document; each method yields its mistakes."""

    def __init__(self, root: Node | None, file: str):
        self.root = root
        self.file = file

    def all(self) -> Iterator[Mistake]:
        """Everything that needs no settings."""
        yield from self.references()
        yield from self.sections()
        yield from self.repeated()
        yield from self.agents()
        yield from self.pools()
        yield from self.variants()

    def names(self, of: str) -> list[str]:
        """Names that a reference may use, defaults included."""
        node = find(self.root, ("callers", "tenants") if of == "tenants" else (of,))
        given = list(node.pairs) if isinstance(node, Pairs) else []
        if of == "classes":
            return given or list(DEFAULT_CLASSES)
        if of == "pools":
            return given or [DEFAULT_POOL]
        return [DENY, *given] if of == "tenants" else given

    def references(self) -> Iterator[Mistake]:
        """Names that are used and not known."""
        for pattern, is_key, of, called in _REFERENCES:
            known = self.names(of)
            known_set = frozenset(known)
            for path, node in select(self.root, pattern):
                text = str(path[-1]) if is_key else node.text if isinstance(node, Leaf) else None
                if text is not None and text not in known_set:
                    yield self.mistake(path, f"is no {called}", known, text, key=is_key)

    def sections(self) -> Iterator[Mistake]:
        """Sections and lists that may be left out, but not be empty."""
        for pattern, of in (
            (("classes",), "a class"),
            (("pools", "*", "engines"), "an engine"),
            (("callers", "key_headers"), "a header"),
        ):
            for path, node in select(self.root, pattern):
                if (isinstance(node, Pairs) and not node.pairs) or (isinstance(node, Items) and not node.items):
                    yield self.mistake(path, "is empty", [f"at least {of}, or leave the key out"])
        for path, node in select(self.root, ("callers", "tenants")):
            if isinstance(node, Pairs) and DENY in node.pairs:
                yield self.mistake((*path, DENY), f"no tenant can be called '{DENY}'", key=True)

    def repeated(self) -> Iterator[Mistake]:
        """Keys with the same digest or id, and names listed twice."""
        keys = ("callers", "tenants", "*", "keys", "*")
        yield from self._twice(select(self.root, (*keys, "sha256")), "the same key as", fold=str.lower)
        yield from self._twice(select(self.root, (*keys, "id")), "the same id as")
        for path, _ in select(self.root, ("pools", "*", "engines")):
            yield from self._twice(select(find(self.root, path), ("*",), path), "listed twice, as")
        hosts = select(self.root, ("profiles", "*", "hosts", "*"))
        yield from self._twice(hosts, "the same host as", fold=str.lower)
        for path, _ in select(self.root, ("retries", "on")):
            yield from self._twice(select(find(self.root, path), ("*",), path), "listed twice, as")
        for path, _ in select(self.root, ("callers", "key_headers")):
            yield from self._twice(select(find(self.root, path), ("*",), path), "listed twice, as", fold=str.lower)

    def _twice(
        self, found: Iterable[tuple[Path, Node]], message: str, fold: Callable[[str], str] = str
    ) -> Iterator[Mistake]:
        first: dict[str, Path] = {}
        for path, node in found:
            if not isinstance(node, Leaf) or node.text is None:
                continue
            before = first.setdefault(fold(node.text), path)
            if before != path:
                yield self.mistake(path, f"{message} {self.spot(before)}")

    def agents(self) -> Iterator[Mistake]:
        """User-Agent patterns that RE2 can't read."""
        quiet = re2.Options()
        quiet.log_errors = False
        for kind in ("deny", "allow"):
            for path, node in select(self.root, ("prefilter", "user_agents", kind, "*")):
                if not isinstance(node, Leaf) or node.text is None or not node.text.startswith("~"):
                    continue
                try:
                    re2.compile(node.text[1:], quiet)
                except re2.error as e:
                    reason = e.args[0] if e.args else ""
                    why = reason.decode("utf-8", "replace") if isinstance(reason, bytes) else str(reason)
                    yield self.mistake(path, f"is no RE2 expression: {why[:80]}", text=node.text)

    def pools(self) -> Iterator[Mistake]:
        """Several pools, none called `default`, and nothing that chooses among them."""
        pools, models = self.names("pools"), find(self.root, ("models",))
        if len(pools) > 1 and DEFAULT_POOL not in pools and not (isinstance(models, Pairs) and models.pairs):
            path: Path = ("models",) if isinstance(models, Pairs) else ("pools",)
            allowed = [f"name models with their pools ({listing(pools)})", f"or call one pool '{DEFAULT_POOL}'"]
            yield self.mistake(path, "several pools and no model that says which one is used", allowed, key=True)

    def variants(self) -> Iterator[Mistake]:
        """Variants without a pool where no pool is the default."""
        pools = self.names("pools")
        if len(pools) == 1 or DEFAULT_POOL in pools:
            return
        for path, model in select(self.root, ("models", "*")):
            variants = find(model, ("variants",))
            if not (isinstance(variants, Pairs) and variants.pairs):
                yield self.mistake((*path, "variants"), _NO_DEFAULT, ["a variant with its pool"])
                continue
            for name, (_, variant) in variants.pairs.items():
                pool = find(variant, ("pool",))
                if pool is None or (isinstance(pool, Leaf) and pool.text is None):
                    yield self.mistake((*path, "variants", name, "pool"), _NO_DEFAULT, pools)

    def statics(self, max_body: int) -> Iterator[Mistake]:
        """Bounds that Envoy's configuration sets and a policy can't pass; `max_body` in bytes."""
        for pattern in (
            ("prefilter", "body", "max"),
            ("prefilter", "body", "per_class", "*"),
            ("profiles", "*", "body_max"),
        ):
            for path, node in select(self.root, pattern):
                if not isinstance(node, Leaf) or node.text is None:
                    continue
                try:
                    over = notation.size(node.text) > max_body
                except ValueError:
                    continue
                if over:
                    allowed = [f"at most {max_body} bytes (SEAWALL_MAX_BODY)"]
                    yield self.mistake(path, "is more than Envoy lets through", allowed, node.text)

    def spot(self, path: Path, *, key: bool = False) -> str:
        """Name a place: its path, file, line and column."""
        line, column = place(self.root, path, key=key)
        return f"{path_text(path)} ({spot(self.file, line, column)})"

    def mistake(
        self, path: Path, message: str, allowed: Sequence[str] = (), text: str | None = None, *, key: bool = False
    ) -> Mistake:
        """Make a mistake at a path; `text` is the author's, shown and compared with the allowed names."""
        line, column = place(self.root, path, key=key)
        value = shown(text) if text is not None else None
        mean = nearest(text, allowed) if text is not None else None
        return Mistake(self.file, line, column, path_text(path), value, message, listing(allowed) or None, mean)
