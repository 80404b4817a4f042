"""Documents that a command is given: read, loaded, and found in the store."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from seawall.cli.failure import Failure

if TYPE_CHECKING:
    from seawall.policy.compiled import Policy
    from seawall.policy.document import Document
    from seawall.policy.load import Loaded
    from seawall.store.contract import ControlPath

MAX_BODY = click.option(
    "--max-body",
    envvar="SEAWALL_MAX_BODY",
    default="8MiB",
    show_default=True,
    metavar="SIZE",
    help="Largest body that Envoy buffers (SEAWALL_MAX_BODY).",
)


@dataclass(frozen=True, slots=True)
class Checked:
    """A document that may be pushed."""

    name: str
    text: str
    digest: str
    loaded: "Loaded"
    policy: "Policy"


def read(name: str) -> tuple[str, bytes]:
    """Name to show and bytes of a document: at most one byte more than is allowed, so that `load` judges the size."""
    from seawall.policy.reader import MAX_BYTES

    if name == "-":
        return "stdin", sys.stdin.buffer.read(MAX_BYTES + 1)
    try:
        with Path(name).open("rb") as f:
            return name, f.read(MAX_BYTES + 1)
    except OSError as e:
        raise Failure(f"{name}: {e.strerror or e}") from None


def whole(file: str, raw: bytes) -> bytes:
    """A document with the rule files that it names in it, their names relative to its own. Raises PolicyError."""
    from seawall.serve.policy_text import complete

    try:
        folder = Path() if file == "stdin" else Path(file).parent
        return complete(raw.decode("utf-8"), file, folder).encode("utf-8")
    except UnicodeDecodeError:
        return raw  # `load` says where


def load_document(text: bytes, file: str, max_body: str) -> "Loaded":
    """Load a document. Raises PolicyError, or Failure for a bad --max-body."""
    from seawall.policy.load import load
    from seawall.policy.notation import size

    try:
        most = size(max_body)
    except ValueError as e:
        raise Failure(f"--max-body (SEAWALL_MAX_BODY) is not {e}") from None
    return load(text, file=file, max_body=most)


def checked(file: str, max_body: str) -> Checked:
    """Read a document that is to be pushed. Raises Failure, with all its mistakes."""
    from seawall.policy.compile import build_policy, digest_of
    from seawall.policy.mistake import PolicyError

    name, raw = read(file)
    try:
        raw = whole(name, raw)
        loaded = load_document(raw, name, max_body)
        if loaded.root is None:
            # Valid, and it would lock everybody out: most likely a pipe whose first command failed.
            raise Failure(f"{name}: the document is empty; nothing changed")
        text = raw.decode("utf-8")
        return Checked(name, text, digest_of(text), loaded, build_policy(loaded, digest_of(text)))
    except PolicyError as e:
        raise Failure(f"not pushed, nothing changed\n{e}") from None


async def kept_document(control: "ControlPath", version: int | None) -> "Document | None":
    """Load a kept version; None for no version, or one that this release can't read."""
    from seawall.policy.load import load
    from seawall.policy.mistake import PolicyError

    if version is None:
        return None
    text, _ = await control.document(version)
    try:
        return load(text, file=f"version {version}").document
    except PolicyError:
        return None


async def kept_policy(control: "ControlPath", version: int) -> "Policy":
    """Compile a kept version. Raises Failure for one that this release can't read."""
    from seawall.policy.compile import compile_policy
    from seawall.policy.mistake import PolicyError

    text, _ = await control.document(version)
    try:
        return compile_policy(text, file=f"version {version}")
    except PolicyError as e:
        raise Failure(str(e)) from None
