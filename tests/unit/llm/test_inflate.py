"""Compressed answers that nobody asked for: read within bounds."""

import gzip
import tracemalloc
import zlib

import pytest

from seawall.llm import inflate
from seawall.llm.answer import Plan
from seawall.llm.inflate import Inflater
from seawall.llm.protocols import CHAT
from seawall.llm.protocols.contract import Origin
from seawall.llm.reading import reader_of
from seawall.llm.usage import Usage

TEXT = b"data: one\n\n" * 2000


def raw_deflate(data: bytes) -> bytes:
    """Deflate without zlib's header, as some servers send it."""
    packer = zlib.compressobj(wbits=-15)
    return packer.compress(data) + packer.flush()


FORMS = {
    "gzip": ("gzip", gzip.compress(TEXT)),
    "x-gzip": ("x-gzip", gzip.compress(TEXT)),
    "two members": ("gzip", gzip.compress(TEXT[:100]) + gzip.compress(TEXT[100:])),
    "deflate": ("deflate", zlib.compress(TEXT)),
    "deflate without header": ("deflate", raw_deflate(TEXT)),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("size", [1, 7, 10_000])
def test_pieces(form: str, size: int) -> None:
    """However it is cut, it inflates to what was packed."""
    coding, data = FORMS[form]
    inflater = Inflater(coding)
    assert b"".join(inflater.feed(data[i : i + size]) for i in range(0, len(data), size)) == TEXT
    assert inflater.complete
    assert not inflater.failed


@pytest.mark.parametrize("data", [b"not gzip", gzip.compress(TEXT)[:50] + b"x" * 50, gzip.compress(b"a") + b"rest"])
def test_broken(data: bytes) -> None:
    """Bytes that are no such coding are given up, and nothing after them is read."""
    inflater = Inflater("gzip")
    inflater.feed(data)
    assert inflater.failed
    assert inflater.feed(gzip.compress(b"more")) == b""


def test_a_bomb_is_bounded() -> None:
    """A piece that inflates to too much is given up before its memory is taken."""
    bomb = gzip.compress(b"\0" * 500_000_000, 9)
    tracemalloc.start()
    inflater = Inflater("gzip")
    assert inflater.feed(bomb) == b""
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert inflater.failed
    assert most < 40_000_000


def test_so_is_one_in_many_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small pieces add up to the bound of the answer."""
    monkeypatch.setattr(inflate, "MAX_INFLATED", 1_000_000)
    bomb = gzip.compress(b"\0" * 50_000_000, 9)
    inflater = Inflater("gzip")
    found = sum(len(inflater.feed(bomb[i : i + 100])) for i in range(0, len(bomb), 100))
    assert inflater.failed
    assert found <= 1_000_000


def test_readers_by_headers() -> None:
    """Content type, coding and status say what reads an answer; what asks for nothing gets no reader."""
    plan = Plan(CHAT, Origin("r", "m"), prompt=5)
    body = gzip.compress(b'{"usage": {"prompt_tokens": 3, "completion_tokens": 4}}')
    reader = reader_of(plan, "200", "application/json", "GZIP")
    assert reader is not None
    assert (reader.piece(body), reader.finish(), reader.recoded) == (body, b"", False)
    assert reader.usage == Usage(3, 4)
    unread = reader_of(plan, "200", "text/event-stream", "br")
    assert unread is not None
    assert (unread.watched, unread.unread, unread.usage) == (False, True, Usage(5, None, estimated=True))
    for status, kind in (("404", "application/json"), ("200", "text/plain"), ("302", ""), ("", "")):
        assert reader_of(plan, status, kind, "") is None
    assert reader_of(Plan(CHAT, Origin("r", "m"), count=False), "200", "text/event-stream", "") is None
    assert reader_of(Plan(CHAT, Origin("r", "m"), count=False, renamed="x"), "200", "text/event-stream", "") is not None
