"""`seawall down`: stop what `seawall up` started."""

import os
import signal
import threading
import time

import click

from seawall.cli.failure import Failure
from seawall.cli.running import find
from seawall.serve.claim import started

PATIENCE = 20.0


@click.command()
def command() -> None:
    """Stop the gate that came up last, and wait until nothing of it is left.

    \b
    Example:
      seawall up --detach && seawall down
    """
    running = find()
    if running is None:
        raise Failure("no gate of 'seawall up' is running")
    birth = started(running.pid)
    os.kill(running.pid, signal.SIGTERM)
    deadline = time.monotonic() + PATIENCE
    pause = threading.Event()
    while started(running.pid) == birth:
        if time.monotonic() > deadline:
            # Its children go with it: each has asked the kernel for that.
            os.kill(running.pid, signal.SIGKILL)
            raise Failure(f"it did not stop in {PATIENCE:.0f} s and was killed")
        pause.wait(0.05)
    click.echo("stopped")
