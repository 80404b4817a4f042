"""`seawall policy canary`: some tenants have a version before all others."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from seawall.cli.failure import Failure
from seawall.cli.policy import changes
from seawall.cli.policy.documents import MAX_BODY, Checked, checked, kept_document, kept_policy
from seawall.cli.store import (
    AUTHOR,
    IF_CURRENT,
    JSON,
    REASON,
    STORE,
    ask,
    author_or_me,
    echo_json,
    moment,
    one_line,
)

if TYPE_CHECKING:
    from seawall.policy.canary import Canary
    from seawall.policy.diff import Difference
    from seawall.store.contract import CanaryShare, Control

NAMED = 10
"""Tenants that are named; more are counted."""


@dataclass(slots=True)
class Outcome:
    """What is to be told."""

    line: str
    canary: "Canary | None" = None
    tenants: Collection[str] = ()
    of: int = 0
    differences: "list[Difference] | None" = None


@click.command()
@click.argument("file", metavar="[FILE]", required=False)
@click.option("--percent", type=click.FloatRange(0, 100), metavar="P", help="Share of the tenants that have it.")
@click.option("--tenants", metavar="A,B", help="Tenants that have it whatever the share; an empty text for none.")
@click.option("--promote", is_flag=True, help="Make it current for all.")
@click.option("--abort", is_flag=True, help="End it: all are on the current version again.")
@click.option("--dry-run", is_flag=True, help="Say what would change, and change nothing.")
@IF_CURRENT
@AUTHOR
@REASON
@MAX_BODY
@STORE
@JSON
def canary(
    file: str | None,
    percent: float | None,
    tenants: str | None,
    promote: bool,
    abort: bool,
    dry_run: bool,
    if_current: int | None,
    author: str | None,
    reason: str,
    max_body: str,
    store: str | None,
    as_json: bool,
) -> None:
    """Give a document to some tenants before all others; then move it, promote it or abort it.

    What tenants have (callers, prefilter, limits, output) comes from the canary for its tenants; what all share (classes,
    engines, pools, models, retries, profiles, store_loss) waits until it is promoted. A share takes the same tenants each
    time, and a larger one only adds some. Without FILE and options: show the canary.

    \b
    Example:
      seawall policy canary policy.yaml --percent 10
      seawall policy canary --percent 50
      seawall policy canary --promote
    """
    wishes = [bool(file), promote, abort, percent is not None or tenants is not None]
    if (promote and abort) or ((promote or abort) and (wishes[0] or wishes[3])):
        raise click.UsageError("--promote and --abort stand alone")
    document = checked(file, max_body) if file else None
    names = None if tenants is None else tuple(dict.fromkeys(t.strip() for t in tenants.split(",") if t.strip()))
    signed = {"author": author_or_me(author), "reason": reason}

    async def go(control: "Control") -> Outcome:
        running = await control.canary()
        if not any(wishes):
            return await _told(control, running, "no canary runs" if running is None else "")
        if dry_run:
            return await _plan(control, running, document, percent, names, promote)
        if promote:
            version = await control.promote_canary(if_current=if_current, **signed)
            return Outcome(f"version {version} is current for all")
        if abort:
            ended = await control.abort_canary(**signed)
            return Outcome(
                f"the canary, version {ended.version}, is ended; all are on version {await control.current()}"
            )
        if document is None:
            await _known(control, names, running)
            moved = await control.move_canary(_share(running, percent, names), **signed)
            return await _told(control, moved, "")
        seen = await control.current()
        await _fits(control, seen, document, names)
        started = await control.start_canary(
            document.text,
            share=_share(running, percent, names),
            digest=document.digest,
            needs=document.loaded.needs,
            if_current=if_current if if_current is not None else seen or 0,
            **signed,
        )
        return await _told(control, started, "")

    outcome = ask(store, go)
    if as_json:
        echo_json(_json(outcome))
    else:
        _echo(outcome)


def _share(running: "Canary | None", percent: float | None, names: tuple[str, ...] | None) -> "CanaryShare":
    """Join what was asked with what runs."""
    from seawall.store.contract import CanaryShare

    if percent is None and names is None and running is None:
        raise Failure("say for whom: --percent P, or --tenants A,B")
    before = CanaryShare(running.percent, running.tenants) if running else CanaryShare(0, ())
    return CanaryShare(before.percent if percent is None else percent, before.tenants if names is None else names)


async def _fits(control: "Control", current: int | None, document: Checked, names: tuple[str, ...] | None) -> None:
    """Refuse a canary whose tenants would need what the current version has not."""
    from seawall.policy.canary import misfits

    if current is None:
        return
    policy = await kept_policy(control, current)
    if lines := misfits(policy, document.policy):
        raise Failure("not started, nothing changed\n" + "\n".join(f"{document.name}: {line}" for line in lines))
    _check_names(names, {*policy.callers.tenants, *document.policy.callers.tenants})


async def _known(control: "Control", names: tuple[str, ...] | None, running: "Canary | None") -> None:
    if names and running is not None:
        _check_names(names, await _tenants(control, running))


def _check_names(names: tuple[str, ...] | None, known: Collection[str]) -> None:
    unknown = [name for name in names or () if name not in known]
    if unknown:
        raise Failure(f"--tenants: no tenant '{unknown[0][:80]}' in the current version or the canary")


async def _tenants(control: "Control", running: "Canary") -> set[str]:
    """Name all tenants that the current version or the canary has."""
    found: set[str] = set()
    for version in (await control.current(), running.version):
        document = await kept_document(control, version)
        found |= set(document.callers.tenants) if document is not None else set()
    return found


async def _told(control: "Control", running: "Canary | None", line: str) -> Outcome:
    """Say who has the canary and what it changes."""
    if running is None:
        return Outcome(line)
    after = await kept_document(control, running.version)
    return await _described(control, running, after, "")


async def _described(control: "Control", running: "Canary", after: Any, line: str) -> Outcome:
    from seawall.policy.canary import chosen
    from seawall.policy.diff import differences

    before = await kept_document(control, await control.current())
    known = {*(before.callers.tenants if before else ()), *(after.callers.tenants if after else ())}
    found = differences(before, after) if before is not None and after is not None else None
    return Outcome(line, running, sorted(chosen(running, known)), len(known), found)


async def _plan(
    control: "Control",
    running: "Canary | None",
    document: Checked | None,
    percent: float | None,
    names: tuple[str, ...] | None,
    promote: bool,
) -> Outcome:
    """Say what would be: the tenants of a new share, or what a promotion changes for all."""
    from seawall.policy.canary import Canary

    if document is None and running is None:
        raise Failure("no canary runs")
    share = _share(running, percent, names)
    if promote:
        share = share._replace(percent=100.0)
    current = await control.current()
    if document is not None:
        await _fits(control, current, document, names)
    version = running.version if running is not None and document is None else 0
    # A canary that has not begun gets its version, and by that its tenants, when it begins.
    salt = running.salt if running is not None else max((v.version for v in await control.history(1)), default=0) + 1
    planned = Canary(version, "", share.percent, share.tenants, salt, current or 0, "", "", 0.0)
    after = document.loaded.document if document is not None else await kept_document(control, version)
    return await _described(control, planned, after, "nothing was changed")


def _echo(outcome: Outcome) -> None:
    from seawall.store.versions import share_text

    running = outcome.canary
    if running is not None:
        named = ", ".join(list(outcome.tenants)[:NAMED])
        more = f" and {len(outcome.tenants) - NAMED} more" if len(outcome.tenants) > NAMED else ""
        what = f"version {running.version} is the canary" if running.version else "the canary would be"
        who = f": {named}{more}" if named else ""
        click.echo(f"{what} for {share_text(running)}, {len(outcome.tenants)} of {outcome.of} by now{who}")
        if running.since:
            click.echo(f"since {moment(running.since)}, by {one_line(running.by)}  {one_line(running.reason)}".rstrip())
    if outcome.differences is not None:
        changes.echo_canary(outcome.differences, changes.SHOWN)
    if outcome.line:
        click.echo(outcome.line)


def _json(outcome: Outcome) -> dict[str, Any]:
    running = outcome.canary
    if running is None:
        return {"canary": None, "said": outcome.line}
    return {
        "canary": {
            "version": running.version,
            "percent": running.percent,
            "tenants": list(running.tenants),
            "base": running.base,
            "by": running.by,
            "reason": running.reason,
            "since": running.since,
        },
        "has_it": list(outcome.tenants),
        "of": outcome.of,
        "changes": None if outcome.differences is None else changes.as_json(outcome.differences),
        "said": outcome.line,
    }
