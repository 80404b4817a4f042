"""`seawall status`: workers, who is behind, pools."""

import asyncio
import json
import time
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from seawall.cli.connection import open_control
from seawall.cli.store import moment, one_line
from seawall.policy.canary import Canary
from seawall.policy.compile import compile_policy
from seawall.policy.mistake import PolicyError
from seawall.store.contract import Control, UnknownVersion
from seawall.store.versions import share_text

STALE = 5.0
"""Seconds without a successful look at the current version after which a worker counts as behind."""


@click.command()
@click.option("--store", metavar="URL", help="Default: SEAWALL_STORE, or the store of the running `seawall up`.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def command(store: str | None, as_json: bool) -> None:
    """Show the current policy and the canary, what every worker runs, and the slots of each pool.

    \b
    Example:
      seawall status
      seawall status --json | jq '.workers[] | select(.behind)'
    """
    found = asyncio.run(_look(store))
    if as_json:
        click.echo(json.dumps(found))
        return
    _show(found)


async def _look(store: str | None) -> dict[str, Any]:
    async with open_control(store) as control:
        current, canary, stamp = await control.current(), await control.canary(), await control.key_stamp()
        wanted = (current, canary.version if canary else 0, stamp)
        now = time.time()
        workers = [
            {
                "worker": report.worker,
                "host": report.host,
                "pid": report.pid,
                "release": report.release,
                "version": report.version,
                "canary": report.canary or None,
                "keys": report.keys,
                "checked_age": round(max(0.0, now - report.checked), 1),
                "behind": (report.version, report.canary, report.keys_stamp) != wanted or now - report.checked > STALE,
                "error": report.error,
            }
            for report in sorted(await control.workers(), key=lambda r: r.worker)
        ]
        inbox = await control.inbox_error()
        return {
            "current": current,
            "canary": _canary(canary, workers) if canary else None,
            "keys": await control.key_count(),
            "workers": workers,
            "pools": await _pools(control, current),
            "inbox_error": inbox[0] if inbox else None,
            "inbox_error_age": round(max(0.0, now - inbox[1]), 1) if inbox else None,
        }


def _canary(canary: Canary, workers: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "version": canary.version,
        "percent": canary.percent,
        "tenants": list(canary.tenants),
        "share": share_text(canary),
        "base": canary.base,
        "by": canary.by,
        "since": canary.since,
        "workers": sum(worker["canary"] == canary.version for worker in workers),
    }


async def _pools(control: Control, current: int | None) -> list[dict[str, Any]]:
    if current is None:
        return []
    try:
        text, _ = await control.document(current)
        policy = compile_policy(text)
    except (PolicyError, UnknownVersion):
        return []
    return [
        {"pool": pool.name, "holders": await control.holders(pool.name), "limit": pool.max_in_flight}
        for pool in policy.pools.values()
    ]


def _show(found: dict[str, Any]) -> None:
    console = Console()
    console.print(f"policy: version {found['current']}" if found["current"] else "policy: none yet")
    if canary := found["canary"]:
        console.print(
            f"canary: version {canary['version']} for {canary['share']}, by {one_line(canary['by'])} since "
            f"{moment(canary['since'])}, in {canary['workers']} of {len(found['workers'])} workers "
            "(`seawall policy canary` says what it changes)",
            markup=False,
        )
    if found["keys"]:
        console.print(f"keys in the store: {found['keys']}")
    if found["inbox_error"]:
        console.print(f"inbox: the last document was refused {found['inbox_error_age']:.0f} s ago:", style="red")
        console.print(found["inbox_error"], markup=False)
    workers = Table("worker", "pid", "release", "policy", "checked", "")
    for w in found["workers"]:
        note = w["error"] or ("behind" if w["behind"] else "")
        workers.add_row(
            w["worker"],
            str(w["pid"]),
            w["release"],
            str(w["version"]) + (f" ~{w['canary']}" if w["canary"] else ""),
            f"{w['checked_age']} s ago",
            note.split("\n")[0],
        )
    console.print(workers)
    pools = Table("pool", "in flight", "limit")
    for p in found["pools"]:
        pools.add_row(p["pool"], str(p["holders"]), str(p["limit"]))
    console.print(pools)
