"""`seawall policy push`: make a document the current version."""

from typing import TYPE_CHECKING

import click

from seawall.cli.failure import Failure
from seawall.cli.policy import changes
from seawall.cli.policy.documents import MAX_BODY, checked, kept_document, kept_policy
from seawall.cli.store import AUTHOR, IF_CURRENT, JSON, REASON, STORE, ask, author_or_me, echo_json

if TYPE_CHECKING:
    from seawall.policy.diff import Difference
    from seawall.store.contract import Control


@click.command()
@click.argument("file", metavar="FILE")
@IF_CURRENT
@click.option("--keep-canary", is_flag=True, help="Push beside a canary that runs; without it such a push is refused.")
@click.option("--dry-run", is_flag=True, help="Say what would change, and change nothing.")
@AUTHOR
@REASON
@MAX_BODY
@STORE
@JSON
def push(
    file: str,
    if_current: int | None,
    keep_canary: bool,
    dry_run: bool,
    author: str | None,
    reason: str,
    max_body: str,
    store: str | None,
    as_json: bool,
) -> None:
    """Make a document the current version, and say what changes by it; `-` is standard input.

    A document with mistakes, one that equals the current version, or one that was compared with a version that is
    current no more (someone else was quicker) is refused, and nothing changes.

    \b
    Example:
      seawall policy push policy.yaml --reason "more for acme"
      sed 's/600/60/' policy.yaml | seawall policy push - --if-current 3
    """
    from seawall.policy.canary import misfits
    from seawall.policy.diff import differences

    document = checked(file, max_body)

    async def go(control: "Control") -> "tuple[int | None, list[Difference] | None]":
        seen = await control.current()
        before = await kept_document(control, seen)
        found = differences(before, document.loaded.document) if before is not None else None
        canary = await control.canary()
        if canary is not None and keep_canary:
            lines = misfits(document.policy, await kept_policy(control, canary.version))
            if lines:
                raise Failure(f"not pushed: the canary, version {canary.version}, would not fit\n" + "\n".join(lines))
        if dry_run:
            return None, found
        version = await control.push(
            document.text,
            digest=document.digest,
            author=author_or_me(author),
            reason=reason,
            needs=document.loaded.needs,
            if_current=if_current if if_current is not None else seen or 0,
            keep_canary=keep_canary,
        )
        return version, found

    version, found = ask(store, go)
    if as_json:
        told = None if found is None else changes.as_json(found)
        echo_json({"version": version, "needs": document.loaded.needs, "changes": told})
        return
    if found is not None:
        changes.echo(found, changes.SHOWN)
    click.echo("nothing was pushed" if version is None else f"version {version} is current")
