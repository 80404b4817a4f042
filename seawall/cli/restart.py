"""`seawall restart`: replace the workers one by one, and follow it."""

import json
import os
import signal
import threading
import time
from typing import Any

import click

from seawall.cli.asking import supervisor_says
from seawall.cli.failure import Failure
from seawall.cli.supervised import socket_dir
from seawall.serve.claim import holder

LOOK_EVERY = 0.1
SILENCE = 10.0
"""Seconds without an answer of the supervisor after which it is given up."""


@click.command()
@click.option(
    "--socket-dir",
    "directory",
    metavar="DIR",
    help="Where the supervisor's workers have their sockets. [SEAWALL_SOCKET_DIR]",
)
@click.option("--no-wait", is_flag=True, help="Ask for it and return.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object at the end.")
def command(directory: str | None, no_wait: bool, as_json: bool) -> None:
    """Replace the workers of the supervisor on this machine one by one: new code, no request lost.

    The same as SIGHUP to 'seawall serve'. It ends when the last worker has been replaced; answers of the old ones go on
    after that, for SEAWALL_GRACE at most.

    \b
    Example:
      pip install --upgrade seawall && seawall restart
    """
    where = socket_dir(directory)
    found = holder(where)
    if found is None:
        raise Failure(f"no supervisor serves {where}; name its directory with --socket-dir")
    before = supervisor_says(found.http) if found.http else {}
    if before is None:
        raise Failure(f"the supervisor, process {found.pid}, does not answer at {found.http}")
    try:
        os.kill(found.pid, signal.SIGHUP)
    except PermissionError:
        raise Failure(f"process {found.pid}, the supervisor, belongs to someone else") from None
    if no_wait or found.http is None:
        click.echo(f"process {found.pid} was asked for it; its log tells how it goes")
        return
    told = _follow(found.http, before["restarts"] + 1, quiet=as_json)
    if as_json:
        click.echo(json.dumps(told))
    if told["phase"] != "done":
        raise Failure(f"stopped after {told['done']} of {told['of']} workers: {told['why']}")


def _follow(http: str, number: int, *, quiet: bool) -> dict[str, Any]:
    """Wait for the end of the supervisor's restart of that number."""
    pause, shown, heard = threading.Event(), 0, time.monotonic()
    while True:
        said = supervisor_says(http)
        if said is not None:
            heard = time.monotonic()
            told: dict[str, Any] = said["restart"] or {}
            if said["restarts"] >= number:
                while not quiet and shown < told["done"]:
                    shown += 1
                    click.echo(f"worker {shown} of {told['of']} replaced")
                if told["phase"] != "running":
                    return told
        elif time.monotonic() - heard > SILENCE:
            raise Failure(f"the supervisor does not answer at {http}")
        pause.wait(LOOK_EVERY)
