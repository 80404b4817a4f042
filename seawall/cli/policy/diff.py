"""`seawall policy diff`: what differs between two versions or files, in words."""

from typing import TYPE_CHECKING

import click

from seawall.cli.failure import Failure
from seawall.cli.policy import changes
from seawall.cli.policy.documents import MAX_BODY, load_document, read, whole
from seawall.cli.store import JSON, STORE, ask, echo_json

if TYPE_CHECKING:
    from seawall.policy.document import Document
    from seawall.store.contract import Control


@click.command()
@click.argument("sides", nargs=-1, metavar="[A] [B]")
@MAX_BODY
@STORE
@JSON
def diff(sides: tuple[str, ...], max_body: str, store: str | None, as_json: bool) -> None:
    """Say what differs from A to B: each a version, `current`, `canary`, a file, or `-` for standard input.

    With one of them: from the current version to it. Without any: from the current version to the canary. Compared is
    what the documents mean: comments, order and defaults that are written out are no difference. Keys are told by their
    ids.

    \b
    Example:
      seawall policy diff policy.yaml
      seawall policy diff 3 current
    """
    from seawall.policy.diff import differences

    if len(sides) > 2:
        raise click.UsageError("at most two documents can be compared")
    one, two = {0: ("current", "canary"), 1: ("current", *sides), 2: sides}[len(sides)]
    if one == two == "-":
        raise click.UsageError("standard input can be read once")

    async def go(control: "Control") -> "tuple[Document, Document]":
        return await _side(control, one, max_body), await _side(control, two, max_body)

    found = differences(*ask(store, go))
    if as_json:
        echo_json(changes.as_json(found))
    elif two == "canary":
        changes.echo_canary(found)
    else:
        changes.echo(found)


async def _side(control: "Control", name: str, max_body: str) -> "Document":
    from seawall.policy.mistake import PolicyError

    version: int | None = None
    if name == "current":
        version = await control.current()
        if version is None:
            raise Failure("no policy has been pushed")
    elif name == "canary":
        canary = await control.canary()
        if canary is None:
            raise Failure("no canary runs; name what to compare: a file, or a version")
        version = canary.version
    elif name.isdecimal():
        version = int(name)
    if version is None:
        file, raw = read(name)
    else:
        text, _ = await control.document(version)
        file, raw = f"version {version}", text.encode("utf-8", "surrogateescape")
    try:
        return load_document(whole(file, raw) if version is None else raw, file, max_body).document
    except PolicyError as e:
        raise Failure(f"can't be compared\n{e}") from None
