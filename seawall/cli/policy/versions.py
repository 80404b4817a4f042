"""`seawall policy history`, `show` and `rollback`: what the store keeps."""

import json
from typing import TYPE_CHECKING, Any

import click

from seawall.cli.failure import Failure
from seawall.cli.store import AUTHOR, JSON, REASON, STORE, ask, author_or_me, echo_json, moment, one_line

if TYPE_CHECKING:
    from seawall.policy.canary import Canary
    from seawall.store.contract import Control, PolicyEvent, VersionInfo


@click.command()
@click.option(
    "-n", "count", type=click.IntRange(1, 1000), default=20, show_default=True, help="How many, newest first."
)
@click.option("--events", is_flag=True, help="What was done, by whom and why: pushes, rollbacks and canaries.")
@STORE
@JSON
def history(count: int, events: bool, store: str | None, as_json: bool) -> None:
    """List kept versions, newest first; `*` marks the current one, `~` the canary.

    With --events: every change of the last thousand, those among them that made no version.

    \b
    Example:
      seawall policy history -n 5
      seawall policy history --events
    """
    if events:
        _show_events(ask(store, lambda control: control.events(count)), as_json)
        return
    versions = ask(store, lambda control: control.history(count))
    if as_json:
        echo_json([_info(v) for v in versions])
        return
    if not versions:
        click.echo("no policy has been pushed")
    for v in versions:
        mark = "*" if v.current else "~" if v.canary else " "
        line = f"{mark} {v.version:>4}  {moment(v.time)}  {v.digest[:12]}  {one_line(v.author)}  {one_line(v.reason)}"
        click.echo(line.rstrip())


def _show_events(events: "list[PolicyEvent] | Any", as_json: bool) -> None:
    if as_json:
        names = ("time", "kind", "version", "author", "reason", "detail")
        echo_json([{name: getattr(event, name) for name in names} for event in events])
        return
    if not events:
        click.echo("nothing has been done")
    for e in events:
        what = f"{e.kind:<8}  version {e.version}" + (f" ({one_line(e.detail)})" if e.detail else "")
        click.echo(f"{moment(e.time)}  {what}  {one_line(e.author)}  {one_line(e.reason)}".rstrip())


@click.command()
@click.argument("version", type=click.IntRange(1), required=False)
@STORE
@JSON
def show(version: int | None, store: str | None, as_json: bool) -> None:
    """Print a version as it was pushed, the current one by default; --json prints what is known of it.

    \b
    Example:
      seawall policy show > policy.yaml
      seawall policy show 3 --json
    """

    async def go(control: "Control") -> "tuple[str, VersionInfo]":
        wanted = version if version is not None else await control.current()
        if wanted is None:
            raise Failure("no policy has been pushed")
        return await control.document(wanted)

    text, info = ask(store, go)
    if as_json:
        echo_json(_info(info))
    else:
        click.echo(text.encode("utf-8"), nl=False)


@click.command()
@click.argument("version", type=click.IntRange(1), required=False)
@AUTHOR
@REASON
@STORE
@JSON
def rollback(version: int | None, author: str | None, reason: str, store: str | None, as_json: bool) -> None:
    """Make a kept version current again; without VERSION the one that was current before.

    A canary that runs is ended: all tenants are on the version that is named here.

    \b
    Example:
      seawall policy rollback --reason "too strict"
      seawall policy rollback 3
    """

    async def go(control: "Control") -> "tuple[int, Canary | None]":
        before, canary = await control.current(), await control.canary()
        now = await control.rollback(version, author=author_or_me(author), reason=reason)
        return now, canary if now != before else None

    now, ended = ask(store, go)
    if as_json:
        click.echo(json.dumps({"version": now, "ended_canary": ended.version if ended else None}))
        return
    click.echo(f"version {now} is current")
    if ended is not None:
        click.echo(f"the canary, version {ended.version}, is ended")


def _info(v: "VersionInfo") -> dict[str, Any]:
    return {
        "version": v.version,
        "current": v.current,
        "canary": v.canary,
        "digest": v.digest,
        "author": v.author,
        "reason": v.reason,
        "time": v.time,
        "needs": v.needs,
    }
