"""Rules compiled into one thing that finds all their hits in a text."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from seawall.scan import dialect
from seawall.scan.began import groups
from seawall.scan.builtin import BUILTIN, Part
from seawall.scan.checks import CHECKS
from seawall.scan.matcher import Matcher, Span, TooMuchWork
from seawall.scan.pattern import Node, widest, with_separators
from seawall.scan.prefilter import DEFAULT_ENGINE, Engine, prefilter
from seawall.scan.re2_program import TooLarge
from seawall.scan.rules import Fault, Found, Hit, Rule, RuleError
from seawall.scan.sight import Sight, sights_of
from seawall.scan.view import View


@dataclass(frozen=True, slots=True)
class Search:
    """One pattern of a rule, compiled."""

    number: int
    rule: Rule
    node: Node
    matcher: Matcher
    checks: tuple[Callable[[str], bool], ...]
    never: str
    folded: bool

    @property
    def widest(self) -> int:
        """Most bytes of a character that the pattern has."""
        return widest(self.node)

    def accepts(self, text: str) -> bool:
        """Whether the text of a match passes what the pattern can't say."""
        longest = self.rule.max_length
        if longest is not None and len(text) > longest:
            return False
        if self.never and any(char in text for char in self.never):
            return False
        return all(check(text) for check in self.checks)

    def all(self, view: View) -> Iterator[Span]:
        """Accepted matches of a whole text. Raises TooMuchWork."""
        for start, end in self.matcher.all(view):
            if self.accepts(view.data[start:end].decode()):
                yield start, end


class RuleSet:
    """Compiled rules; immutable, and shared by all texts and streams of a process."""

    def __init__(self, rules: Sequence[Rule], searches: Sequence[Search], engine: Engine):
        self.rules = tuple(rules)
        self.searches = tuple(searches)
        self.engine = engine
        self.prefilter = prefilter([search.node for search in searches], engine)
        self.folds = any(search.folded for search in searches)
        self.began = groups((search.rule, search.node) for search in searches)
        self._order = {rule.id: place for place, rule in enumerate(self.rules)}

    def spans(self, text: str) -> list[Hit]:
        """Every hit in a text, in the order of `in_order`."""
        return list(self.scan(text).hits)

    def scan(self, text: str) -> Found:
        """Hits in a whole text, and what could not be looked for; never raises."""
        hits: list[Hit] = []
        faults: dict[str, Fault] = {}
        try:
            for sight in sights_of(text, folds=self.folds):
                found: list[tuple[Search, Span]] = []
                for search in self.candidates(sight):
                    try:
                        found += [(search, span) for span in search.all(sight.view)]
                    except Exception as e:
                        faults.setdefault(search.rule.id, fault_of(e, [search.rule], search.rule))
                places = sight.spans(span for _, span in found)
                hits += [Hit(search.rule, *place) for (search, _), place in zip(found, places, strict=True)]
        except Exception as e:
            return Found((), (fault_of(e, self.rules),))
        return Found(tuple(self.arranged(hits, {})), tuple(faults.values()))

    def candidates(self, sight: Sight) -> list[Search]:
        """Searches that may find something in a sight."""
        numbers = self.prefilter.candidates(sight.view.data)
        if not numbers:
            return []
        found = [self.searches[number] for number in sorted(numbers)]
        return [search for search in found if search.folded in sight.serves]

    def in_order(self, hits: Iterable[Hit]) -> list[Hit]:
        """Sort hits by beginning, then the longest, then by the order of the rules."""
        return sorted(hits, key=lambda hit: (hit.start, -hit.end, self._order[hit.rule.id]))

    def arranged(self, hits: Iterable[Hit], until: dict[str, int]) -> list[Hit]:
        """Sort hits, and leave out those inside another one of the same rule, found by another pattern of its set.

        `until` has the furthest end of each rule's hits, and is kept up to date.
        """
        kept = []
        for hit in self.in_order(hits):
            if hit.end > until.get(hit.rule.id, -1):
                until[hit.rule.id] = hit.end
                kept.append(hit)
        return kept


def fault_of(error: Exception, rules: Iterable[Rule], rule: Rule | None = None) -> Fault:
    """Make a value of what went wrong; no word of an exception is kept, for it may hold the text."""
    why = "looks at the text over and over" if isinstance(error, TooMuchWork) else type(error).__name__
    return Fault(rule, why, closed=any(rule.on_error == "closed" for rule in rules))


def compile_rules(rules: Iterable[Rule], engine: Engine = DEFAULT_ENGINE) -> RuleSet:
    """Compile rules, ids being unique. Raises RuleError for the first that can't be."""
    known = tuple(rules)
    searches: list[Search] = []
    for rule in known:
        for part in parts_of(rule):
            searches.append(_search(len(searches), rule, part))
    try:
        return RuleSet(known, searches, engine)
    except TooLarge as e:
        raise RuleError(known[-1].id, f"all rules together are too large for RE2: {e}") from None


def parts_of(rule: Rule) -> tuple[Part, ...]:
    """Patterns of a rule. Raises RuleError for a set that isn't there."""
    if rule.builtin is None:
        return (Part(rule.pattern or ""),)
    if rule.builtin not in BUILTIN:
        raise RuleError(rule.id, f"no set is called '{rule.builtin}'")
    return BUILTIN[rule.builtin]


def _search(number: int, rule: Rule, part: Part) -> Search:
    try:
        node = dialect.parse(part.pattern)
        if rule.builtin is None and rule.normalises:
            node = with_separators(node)
        matcher = Matcher(node)
    except dialect.Refused as e:
        raise RuleError(rule.id, e.why, e.position) from None
    except TooLarge:
        raise RuleError(rule.id, "is too large for RE2") from None
    checks = [CHECKS[name] for name in (part.check, rule.check) if name is not None]
    return Search(number, rule, node, matcher, tuple(checks), part.never, rule.normalises and not part.plain)
