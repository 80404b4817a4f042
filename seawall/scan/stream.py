"""Rules over a stream of text that comes in pieces: what may leave, and when.

A scanner holds back the text from where a match may have begun that more text could still complete, change or end,
and nothing else. So a match is found, and masked whole, however the text was cut; and text in which nothing has begun
leaves at once. Two bounds end the wait, in bytes and in time. What has waited for so long leaves: a match so far
covered by its placeholder (and its later characters by the same one), a mere beginning as it is. If it turns out to
be a match after all, the hit is `late`.
"""

from collections import deque
from dataclasses import dataclass, replace
from typing import NamedTuple

from seawall.scan.fold import disguised, invisible
from seawall.scan.rules import Fault, Hit
from seawall.scan.ruleset import RuleSet, Search, fault_of
from seawall.scan.sight import Sight, sights_of

RETAINED = 16 * 1024
"""Characters of a stream that are looked back at: no match is longer."""
_STRIDE = 4 * 1024
_LOOK_BACK = 32


@dataclass(frozen=True, slots=True)
class Hold:
    """Bounds of the wait: `size` in bytes of UTF-8, `seconds` of any one character."""

    size: int = 1024
    seconds: float = 2.0


class Piece(NamedTuple):
    """What a step gives: text that may leave, and what was decided.

    `blocked` forbids the rest of the stream: nothing more leaves, and the caller ends it.
    """

    text: str
    hits: tuple[Hit, ...] = ()
    faults: tuple[Fault, ...] = ()
    blocked: Hit | Fault | None = None


NOTHING = Piece("")


class StreamScanner:
    """Scans one stream of text: one choice's content, its reasoning, or the arguments of one tool call."""

    __slots__ = (
        "_arrived", "_base", "_blocked", "_context", "_covered", "_faults", "_half", "_hold", "_marks", "_off",
        "_passing", "_raw", "_resume", "_rules", "_sent", "_text", "_until",
    )  # fmt: skip

    def __init__(self, rules: RuleSet, hold: Hold):
        self._rules = rules
        self._hold = hold
        self._text = ""
        """Text that is still looked at; `_base` is the index in the stream of its first character."""
        self._base = 0
        self._context = 0
        """Characters of it that are only looked back at."""
        self._sent = 0
        """Index up to which the stream has left."""
        self._raw = 0
        """Index up to which some of it left as it was."""
        self._arrived: deque[tuple[int, float]] = deque()
        """Index of the end of each piece that is held, and when it came."""
        self._half = ""
        """First half of a surrogate pair."""
        self._marks: list[Hit] = []
        """Decided hits that mask text which has not left yet."""
        self._covered: dict[tuple[str, int], int] = {}
        """Matches, by rule and beginning, whose placeholder left before their end was known; and what it covered."""
        self._resume: dict[int, int] = {}
        self._until: dict[str, int] = {}
        self._off: set[str] = set()
        self._faults: list[Fault] = []
        self._passing = not rules.searches
        self._blocked: Hit | Fault | None = None

    @property
    def due(self) -> float | None:
        """Time at which held text has waited for long enough; None if nothing is held."""
        return self._arrived[0][1] + self._hold.seconds if self._arrived else None

    @property
    def held(self) -> int:
        """Characters that came and have not left."""
        return self._base + len(self._text) - self._sent

    def feed(self, text: str, now: float) -> Piece:
        """Take the next piece of text, `now` in seconds of any clock that goes forward."""
        if self._half or not text.isascii():
            text = self._joined(text)
        if self._passing and self._blocked is None:
            return Piece(text)
        if len(text) <= _STRIDE:
            return self._pass(text, now) or self._take(text, now)
        pieces = [self._take(text[i : i + _STRIDE], now) for i in range(0, len(text), _STRIDE)]
        return _together(pieces)

    def flush(self, now: float) -> Piece:
        """Let go what has waited for too long."""
        due = self.due
        return self._step(now) if due is not None and due <= now else NOTHING

    def finish(self, now: float) -> Piece:
        """The stream has ended: decide all that is left, and let it go."""
        half, self._half = self._half, ""
        if self._passing and self._blocked is None:
            return Piece(half)
        self._text += half
        return self._step(now, ends=True)

    def _pass(self, text: str, now: float) -> Piece | None:
        """Step for the common case that no rule has a match in what is looked at; None if it is another case."""
        rules = self._rules
        if self._marks or self._covered or not text or self._blocked is not None:
            return None
        whole = self._text + text
        due = self.due
        try:
            data = whole.encode()
            size = len(data)
            ascii_only = size == len(whole)
            if not ascii_only and rules.folds and disguised(whole, data):
                return None
            if (due is not None and due <= now) or rules.prefilter.candidates(data):
                return None
            start = self._context if ascii_only else len(whole[: self._context].encode())
            hold = keep = size
            for group in rules.began:
                at = group.since(data, start)
                keep = min(keep, at)
                hold = min(hold, at) if group.holds else hold
        except Exception:
            return None
        if size - hold > self._hold.size:
            return None
        if not ascii_only:
            hold, keep = len(data[:hold].decode()), len(data[:keep].decode())
        sent = self._sent - self._base
        out = whole[sent:hold]
        self._text = whole
        end = self._base + len(whole)
        if out:
            self._sent = self._raw = self._base + hold
        if self._sent == end:
            self._arrived.clear()
        else:
            self._arrived.append((end, now))
            self._arrive()
        self._trim(min(keep, self._sent - self._base))
        return Piece(out) if out else NOTHING

    def _arrive(self) -> None:
        """Forget when pieces came that have left."""
        while self._arrived and self._arrived[0][0] <= self._sent:
            self._arrived.popleft()

    def _joined(self, text: str) -> str:
        """Make pairs of surrogates one character; keep the first half of one until the next piece comes."""
        text, self._half = self._half + text, ""
        try:
            text.encode()
        except UnicodeEncodeError:
            text = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
            if "\ud800" <= text[-1] < "\udc00":
                text, self._half = text[:-1], text[-1]
        return text

    def _take(self, text: str, now: float) -> Piece:
        if not text or self._blocked is not None:
            return NOTHING
        self._text += text
        self._arrived.append((self._base + len(self._text), now))
        return self._step(now)

    def _step(self, now: float, *, ends: bool = False) -> Piece:
        if self._blocked is not None:
            return NOTHING
        if self._passing:
            return Piece(self._rest())
        try:
            return self._scan(now, ends=ends)
        except Exception as e:
            fault = fault_of(e, self._rules.rules)
            if fault.closed:
                self._blocked = fault
                return Piece("", (), (fault,), fault)
            self._passing = True
            return Piece(self._rest(), (), (fault,))

    def _rest(self) -> str:
        rest = self._text[self._sent - self._base :]
        self._sent = self._base + len(self._text)
        self._arrived.clear()
        return rest

    def _scan(self, now: float, *, ends: bool) -> Piece:
        text, base = self._text, self._base
        sights = sights_of(text, folds=self._rules.folds, begins=base == 0, ends=ends, context=self._context)
        # Indices in `text` from which on nothing is decided: by the rules that text waits for, and by the others.
        hold = heed = len(text)
        if not ends:
            for sight in sights:
                start = sight.view.offset(sight.view.context)
                for group in self._rules.began:
                    at = group.since(sight.view.data, start)
                    if at < len(sight.view.data):
                        if group.holds:
                            hold = min(hold, sight.start(at))
                        else:
                            heed = min(heed, sight.start(at))
        decided: list[Hit] = []
        undecided: list[Hit] = []
        before = len(self._faults)
        for sight in sights:
            for search in self._rules.candidates(sight):
                open_from = len(text) if ends else heed if search.rule.action == "flag" else hold
                self._search(search, sight, open_from, decided, undecided)
        faults = tuple(self._faults[before:])
        hits = [self._marked_late(hit) for hit in self._rules.arranged(decided, self._until)]
        target = base + hold
        if hold < len(text):
            target = max(target, self._let_go(sights[0], now))
        forced = [self._marked_late(hit) for hit in undecided if hit.start < target]
        blocked = next((hit for hit in (*hits, *forced) if hit.rule.action == "block"), None)
        if blocked is not None:
            if blocked not in hits:
                hits.append(blocked)
            hits = hits[: hits.index(blocked) + 1]
            target = min(target, blocked.start)
        closed = next((fault for fault in faults if fault.closed), None)
        self._blocked = blocked or closed
        self._marks += (hit for hit in hits if hit.rule.action == "mask")
        covers = [hit for hit in forced if hit.rule.action == "mask"]
        out = "" if closed is not None and blocked is None else self._emit(target, covers)
        if self._blocked is None:
            self._trim(min(hold, heed, self._sent - base))
        else:
            self._arrived.clear()
        return Piece(out, tuple(hits), faults, self._blocked) if out or hits or faults else NOTHING

    def _search(self, search: Search, sight: Sight, open_from: int, decided: list[Hit], undecided: list[Hit]) -> None:
        """Find matches of one pattern: those before `open_from` are decided, the first behind it is as it is so far."""
        if search.rule.id in self._off:
            return
        view, base = sight.view, self._base
        size = len(view.data)
        at = sight.offset(max(self._resume.get(search.number, 0) - base, self._context))
        try:
            while at < size and (found := search.matcher.first(view, at, size)) is not None:
                accepted = search.accepts(view.data[found[0] : found[1]].decode())
                ((start, end),) = sight.spans([found])
                if accepted:
                    hit = Hit(search.rule, base + start, base + end)
                    (decided if start < open_from else undecided).append(hit)
                if start >= open_from:
                    return
                at = found[1]
                self._resume[search.number] = base + end
        except Exception as e:
            self._off.add(search.rule.id)
            self._faults.append(fault_of(e, [search.rule], search.rule))

    def _marked_late(self, hit: Hit) -> Hit:
        if hit.rule.action == "flag":
            return hit
        covered = self._covered.get((hit.rule.id, hit.start))
        known = hit.start if covered is None else covered
        return replace(hit, late=True) if known < min(hit.end, self._raw) else hit

    def _let_go(self, plain: Sight, now: float) -> int:
        """Index up to which text has waited for long enough, or is too much to hold."""
        index = self._sent
        for end, came in self._arrived:
            if came + self._hold.seconds > now:
                break
            index = end
        view = plain.view
        over = len(view.data) - self._hold.size
        if over > 0 and over > view.offset(self._sent - self._base):
            while view.data[over] & 0xC0 == 0x80:
                over += 1
            index = max(index, self._base + view.indices((over,))[over])
        return index

    def _emit(self, target: int, covers: list[Hit]) -> str:
        """Let the text up to `target` leave; a decided match leaves whole, `covers` as far as they are known."""
        text, base, at = self._text, self._base, self._sent
        out: list[str] = []
        for hit in self._rules.in_order([*self._marks, *covers]) if self._marks or covers else ():
            if hit.start >= target:
                break
            if hit.end <= at:
                continue
            if hit.start > at:
                out.append(text[at - base : hit.start - base])
                self._raw = hit.start
            match = (hit.rule.id, hit.start)
            if match not in self._covered:
                out.append(hit.rule.replacement)
            if hit in covers:
                self._covered[match] = hit.end
            at = hit.end
        if at < target:
            out.append(text[at - base : target - base])
            at = self._raw = target
        self._sent = at
        self._marks = [hit for hit in self._marks if hit.end > at]
        self._arrive()
        return "".join(out)

    def _trim(self, keep: int) -> None:
        """Forget what no match can reach any more, but for a character to look back at; `keep` is an index in `_text`."""
        keep = max(keep, len(self._text) - RETAINED)
        cut = max(keep - 1, 0)
        while cut > 0 and keep - cut < _LOOK_BACK and invisible(self._text[cut]):
            cut -= 1
        self._text = self._text[cut:]
        self._base += cut
        self._context = keep - cut
        if self._covered:
            first = self._base + self._context
            self._covered = {match: end for match, end in self._covered.items() if match[1] >= first}


def _together(pieces: list[Piece]) -> Piece:
    return Piece(
        "".join(piece.text for piece in pieces),
        tuple(hit for piece in pieces for hit in piece.hits),
        tuple(fault for piece in pieces for fault in piece.faults),
        next((piece.blocked for piece in pieces if piece.blocked is not None), None),
    )
