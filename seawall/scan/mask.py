"""What leaves in place of a hit."""

import json
from collections.abc import Iterable, Iterator

from seawall.scan.rules import Hit


def mask(text: str, hits: Iterable[Hit]) -> str:
    """Put its rule's placeholder in place of each hit of a rule that masks; `hits` in the order that a scan gives.

    Where hits overlap, what the first one doesn't cover gets the placeholder of the next.
    """
    out: list[str] = []
    at = 0
    for start, end, placeholder in _pieces(hits):
        out += (text[at:start], placeholder)
        at = end
    out.append(text[at:])
    return "".join(out)


def mask_json(content: str, hits: Iterable[Hit]) -> str:
    """Mask inside a JSON string: `content` is what stands between its quotes, `hits` are of the text it means.

    All other characters stay as they are, escapes included, and no escape is cut. Raises ValueError where `content` is
    no inside of a JSON string.
    """
    out: list[str] = []
    at = 0
    place = _Places(content)
    for start, end, placeholder in _pieces(hits):
        out += (content[at : place.of(start)], json.dumps(placeholder, ensure_ascii=False)[1:-1])
        at = place.of(end)
    out.append(content[at:])
    return "".join(out)


def _pieces(hits: Iterable[Hit]) -> Iterator[tuple[int, int, str]]:
    """Pieces to replace, in order and apart."""
    until = 0
    for hit in hits:
        if hit.rule.action == "mask" and hit.end > until:
            yield max(hit.start, until), hit.end, hit.rule.replacement
            until = hit.end


class _Places:
    """Where characters of a JSON string's text stand in what it is written as; asked for in rising order."""

    def __init__(self, content: str):
        self._content = content
        self._at = 0
        self._index = 0

    def of(self, index: int) -> int:
        while self._index < index:
            escape = self._content.find("\\", self._at)
            plain = (len(self._content) if escape < 0 else escape) - self._at
            if plain >= index - self._index or escape < 0:
                if plain < index - self._index:
                    raise ValueError("a hit ends behind the string")
                self._at += index - self._index
                self._index = index
                break
            self._index += plain + 1
            self._at = self._after(escape)
        return self._at

    def _after(self, escape: int) -> int:
        """End of the escape that begins here; of both where two make one character."""
        if self._content[escape + 1 : escape + 2] != "u":
            return escape + 2
        pair = self._content[escape : escape + 12]
        if len(pair) == 12 and pair[6:8] == "\\u" and 0xD800 <= int(pair[2:6], 16) < 0xDC00:
            return escape + (12 if 0xDC00 <= int(pair[8:], 16) < 0xE000 else 6)
        return escape + 6
