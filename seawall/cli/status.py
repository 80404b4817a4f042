"""`seawall status`: workers, who is behind, pools."""

import asyncio
import json
import time
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from seawall.cli.asking import supervisor_says
from seawall.cli.connection import open_control
from seawall.cli.store import moment, one_line
from seawall.cli.supervised import socket_dir
from seawall.policy.canary import Canary
from seawall.policy.compile import compile_policy
from seawall.policy.mistake import PolicyError
from seawall.serve.claim import holder
from seawall.store.contract import Control, UnknownVersion
from seawall.store.versions import share_text

STALE = 5.0
"""Seconds without a successful look at the current version after which a worker counts as behind."""


@click.command()
@click.option("--store", metavar="URL", help="Default: SEAWALL_STORE, or the store of the running `seawall up`.")
@click.option(
    "--socket-dir",
    "directory",
    metavar="DIR",
    help="Whose supervisor is asked too, if one runs on this machine. [SEAWALL_SOCKET_DIR]",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def command(store: str | None, directory: str | None, as_json: bool) -> None:
    """Show the current policy and the canary, what every worker runs, the slots of each pool, and how a restart goes.

    \b
    Example:
      seawall status
      seawall status --json | jq '.workers[] | select(.behind)'
    """
    found = asyncio.run(_look(store))
    found["supervisor"] = _supervisor(socket_dir(directory))
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


def _supervisor(directory: str) -> dict[str, Any] | None:
    """What the supervisor on this machine says of its processes; None when there is none, or it can't be asked."""
    found = holder(directory)
    said = supervisor_says(found.http) if found is not None and found.http else None
    if found is None or said is None:
        return None
    processes = [
        {"worker": name, "role": role, **{k: who[k] for k in ("pid", "generation", "age", "state")}}
        for name, place in said["workers"].items()
        for role, who in (("", place), ("successor", place["successor"]), ("predecessor", place["leaving"]))
        if who and who["pid"]
    ]
    return {"pid": found.pid, "processes": processes, "restart": said["restart"], "orphans": said["orphans"]}


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
    if found["supervisor"]:
        _show_supervisor(console, found["supervisor"])
    pools = Table("pool", "in flight", "limit")
    for p in found["pools"]:
        pools.add_row(p["pool"], str(p["holders"]), str(p["limit"]))
    console.print(pools)


def _show_supervisor(console: Console, said: dict[str, Any]) -> None:
    restart = said["restart"]
    if restart:
        word = {"running": "under way", "done": "done", "stopped": "stopped"}[restart["phase"]]
        why = f": {restart['why']}" if restart["why"] else ""
        line = f"rolling restart {word}, {restart['done']} of {restart['of']} workers replaced{why}"
        console.print(line, markup=False, style="red" if restart["phase"] == "stopped" else None, soft_wrap=True)
    if said["orphans"]:
        console.print(f"{said['orphans']} workers of a supervisor that died still end their answers")
    table = Table("place", "pid", "process", "age", "state", title=f"supervisor, process {said['pid']}")
    for p in said["processes"]:
        state = f"{p['state']} ({p['role']})" if p["role"] else p["state"]
        table.add_row(p["worker"], str(p["pid"]), f"no. {p['generation']}", f"{p['age']:.0f} s", state)
    console.print(table)
