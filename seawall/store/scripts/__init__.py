"""Lua scripts, one atomic operation a file; each file's head tells KEYS, ARGV and what it returns."""

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files

from seawall.store.resp import bulk

_INCLUDE = re.compile(r"^-- include (\w+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Script:
    """A script as the wire wants it. `call_head` is the constant middle of an EVALSHA, `load` a whole SCRIPT LOAD."""

    name: str
    text: str
    sha: bytes
    call_head: bytes
    load: bytes

    def call(self, keys: Sequence[bytes], args: Sequence[bytes]) -> bytes:
        """Write an EVALSHA command; hot callers write it themselves from `call_head`."""
        parts = b"".join([bulk(part) for part in (*keys, *args)])
        return b"*%d\r\n%b%b%b" % (3 + len(keys) + len(args), self.call_head, bulk(b"%d" % len(keys)), parts)


def load(name: str) -> Script:
    """Read `<name>.lua` from this package; a line `-- include OTHER` stands for OTHER.lua. Raises FileNotFoundError."""
    text = _INCLUDE.sub(lambda found: _read(found[1]), _read(name))
    raw = text.encode()
    sha = hashlib.sha1(raw, usedforsecurity=False).hexdigest().encode()
    return Script(
        name=name,
        text=text,
        sha=sha,
        call_head=b"$7\r\nEVALSHA\r\n" + bulk(sha),
        load=b"*3\r\n$6\r\nSCRIPT\r\n$4\r\nLOAD\r\n" + bulk(raw),
    )


def _read(name: str) -> str:
    return files(__package__).joinpath(f"{name}.lua").read_text("utf-8")
