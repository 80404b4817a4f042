"""Answers that an engine compressed although nobody asked it to: gzip and deflate, piece by piece, bounded.

br and zstd are not read: the standard library of the oldest Python that is supported knows neither.
"""

import zlib

CODINGS = frozenset({"gzip", "x-gzip", "deflate"})
MAX_INFLATED = 64 * 1024 * 1024
"""Bytes that one answer may inflate to; no answer of a language model comes near it."""
_AT_ONCE = 8 * 1024 * 1024
"""Bytes that one piece may inflate to: Envoy's pieces have at most 1 MiB, and text shrinks by less than eight times."""


class Inflater:
    """Inflates one answer. `failed` once its bytes were no such coding, or became too many: what comes after is not read.

    Several gzip members in a row are one answer (RFC 1952 §2.2); deflate comes with zlib's header or, from some servers,
    without.
    """

    __slots__ = ("_begun", "_coding", "_inflate", "_total", "failed")

    def __init__(self, coding: str):
        self._coding = coding
        self._begun = b""
        self._inflate: zlib._Decompress | None = None
        self._total = 0
        self.failed = False

    def feed(self, piece: bytes) -> bytes:
        """Take the next bytes; those that they inflate to."""
        found = bytearray()
        rest = piece
        while rest and not self.failed:
            if self._inflate is None or self._inflate.eof:
                rest = self._begin(rest)
                if self._inflate is None:
                    break
            try:
                new = self._inflate.decompress(rest, _AT_ONCE - len(found) + 1)
            except zlib.error:
                self.failed = True
                break
            found += new
            self._total += len(new)
            if len(found) > _AT_ONCE or self._total > MAX_INFLATED:
                self.failed = True
                return b""
            rest = self._inflate.unused_data
        return bytes(found)

    @property
    def complete(self) -> bool:
        """Whether the coding has come to its end."""
        return not self.failed and self._inflate is not None and self._inflate.eof

    def _begin(self, data: bytes) -> bytes:
        if self._coding != "deflate":
            self._inflate = zlib.decompressobj(zlib.MAX_WBITS | 16)
            return data
        if self._inflate is not None:
            # Bytes after the end of deflate belong to nothing.
            self._inflate = None
            self.failed = True
            return b""
        self._begun += data
        if len(self._begun) < 2:
            return b""
        first, second = self._begun[:2]
        zlib_header = first & 0x0F == 8 and (first << 8 | second) % 31 == 0
        self._inflate = zlib.decompressobj(zlib.MAX_WBITS if zlib_header else -zlib.MAX_WBITS)
        return self._begun
