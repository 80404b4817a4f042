"""`seawall up`: one command, and a whole gate runs here."""

import contextlib
import fcntl
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from seawall.cli.failure import Failure
from seawall.cli.local_gate import LocalGate, Wishes
from seawall.cli.running import publish, runtime_dir
from seawall.serve.hangup import Terminal

READY_FD = "SEAWALL_UP_READY_FD"
"""Set for the process that `--detach` leaves behind: where it says that it is up, or why not."""

REDIS = "SEAWALL_UP_REDIS"
"""The URL of --redis for the process that `--detach` leaves behind: it may hold a password, and anyone can see argv."""


@click.command()
@click.option("--policy", type=click.Path(path_type=Path), help="Policy to start with; default: the demo policy.")
@click.option("--port", type=click.IntRange(1, 65535), default=10000, show_default=True, help="Envoy's listener.")
@click.option("--workers", type=click.IntRange(1, 256), help="Worker processes; default: one a core.")
@click.option("--redis", "redis_url", metavar="URL", envvar=REDIS, help="Use this Redis instead of an embedded Valkey.")
@click.option("--upstream", "upstreams", multiple=True, metavar="URL", help="A real engine instead of the simulators.")
@click.option("--config-dir", type=click.Path(path_type=Path), help="Where configuration, sockets, data and logs go.")
@click.option("--detach", is_flag=True, help="Return once it is up; stop it with 'seawall down'.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of the table.")
def command(
    policy: Path | None,
    port: int,
    workers: int | None,
    redis_url: str | None,
    upstreams: tuple[str, ...],
    config_dir: Path | None,
    detach: bool,
    as_json: bool,
) -> None:
    """Start Valkey, two simulated engines, the gate workers and a real Envoy, and wait until a request has passed them.

    Ctrl-C stops everything; SIGHUP, or 'seawall restart', replaces the workers one by one.

    \b
    Example:
      seawall up
      seawall up --port 10010 --policy policy.yaml --detach
      seawall up --upstream http://127.0.0.1:8000
    """
    if detach:
        _detach(as_json, redis_url)
        return
    parent = os.environ.pop(READY_FD, None)
    os.environ.pop(REDIS, None)
    stopped, restart, terminal = threading.Event(), threading.Event(), Terminal()
    for sig in (signal.SIGINT, signal.SIGTERM):
        signal.signal(sig, lambda *_: stopped.set())
    signal.signal(signal.SIGHUP, lambda *_: (stopped if terminal.gone() else restart).set())
    try:
        with _directory(config_dir) as directory:
            wishes = Wishes(policy or demo_policy(), port, workers, redis_url, upstreams, directory)
            _run(LocalGate(wishes), stopped, restart, as_json, parent)
    except Failure as e:
        if parent is None:
            raise
        _tell(parent, {"error": e.message})
        sys.exit(1)


def _run(
    gate: LocalGate, stopped: threading.Event, restart: threading.Event, as_json: bool, parent: str | None
) -> None:
    state: Path | None = None
    try:
        gate.start(stopped)
        state = publish(os.getpid(), gate.told)
        if parent is None:
            show(gate.told, as_json, "Ctrl-C")
        else:
            _tell(parent, {"told": gate.told})
        gate.watch(stopped, restart)
    finally:
        if state is not None:
            state.unlink(missing_ok=True)
        gate.stop()


@contextlib.contextmanager
def _directory(given: Path | None) -> Iterator[Path]:
    """The directory of a gate: the user's, kept, or one of ours, removed at the end."""
    if given is not None:
        try:
            given.mkdir(parents=True, exist_ok=True)
            lock = (given / "lock").open("w")
        except OSError as e:
            raise Failure(f"--config-dir: {given} can't be used: {e.strerror}") from None
        with lock:
            try:
                # Two gates in one directory would take each other's sockets and data.
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise Failure(f"--config-dir: another gate of 'seawall up' runs in {given}") from None
            yield given.resolve()
        return
    base = runtime_dir()
    for left in base.glob("gate-*"):
        pid = left.name.removeprefix("gate-")
        if not Path(f"/proc/{pid}").exists():
            shutil.rmtree(left, ignore_errors=True)
    directory = base / f"gate-{os.getpid()}"
    directory.mkdir(mode=0o700)
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _without_redis(argv: list[str]) -> list[str]:
    kept, skip = [], False
    for arg in argv:
        if not skip and arg != "--redis" and not arg.startswith("--redis="):
            kept.append(arg)
        skip = arg == "--redis" and not skip
    return kept


def _detach(as_json: bool, redis_url: str | None) -> None:
    """Start ourselves again in the background and wait for its word; it does not outlive us before it is up."""
    ours, theirs = os.pipe()
    argv = _without_redis([arg for arg in sys.argv[1:] if arg not in {"--detach", "--json"}])
    child = subprocess.Popen(
        [sys.executable, "-m", "seawall", *argv],
        env={**os.environ, READY_FD: str(theirs), **({REDIS: redis_url} if redis_url else {})},
        pass_fds=[theirs],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    os.close(theirs)
    for sig in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(sig, signal.default_int_handler)
    try:
        with os.fdopen(ours, encoding="utf-8") as pipe:
            word = pipe.readline()
    except KeyboardInterrupt:
        child.terminate()
        child.wait()
        raise Failure("stopped while starting") from None
    said: dict[str, Any] = (
        json.loads(word) if word else {"error": f"it ended with status {child.wait()} before it was up"}
    )
    if "error" in said:
        child.wait()
        raise Failure(said["error"])
    show(said["told"], as_json, f"{our_command()} down")


def _tell(fd: str, word: dict[str, Any]) -> None:
    """Tell the `--detach` that started us, once; Failure when it is not there any more."""
    try:
        with os.fdopen(int(fd), "w", encoding="utf-8") as pipe:
            pipe.write(json.dumps(word) + "\n")
    except OSError:
        raise Failure("whoever started this gate has gone") from None


def demo_policy() -> Path:
    """The demo policy: beside the package in a wheel, in examples/ in a checkout."""
    package = Path(__file__).resolve().parent.parent
    for path in (package / "examples" / "policy.yaml", package.parent / "examples" / "policy.yaml"):
        if path.is_file():
            return path
    raise Failure("the demo policy is missing; give one with --policy")


def show(told: dict[str, Any], as_json: bool, stop: str) -> None:
    """Print what runs where, how to use it, and what stops it."""
    told = {**told, "redis": without_password(told["redis"])}
    if as_json:
        click.echo(json.dumps(told))
        return
    console = Console(highlight=False)
    table = Table("what", "where", "pid", title="Seawall is up")
    pids = told["pids"]
    table.add_row("Envoy, listener", told["listener"], str(pids["envoy"]))
    table.add_row("Envoy, admin", told["admin"], "")
    table.add_row(f"gate, {told['workers']} workers", told["metrics"], str(pids["supervisor"]))
    table.add_row("Redis", told["redis"], str(pids.get("redis", "")))
    for index, url in enumerate(told["engines"]):
        table.add_row(f"engine {index}", url, str(pids.get(f"engine-{index}", "")))
    console.print(table)
    click.echo(f"logs: {told['logs']}")
    key = next(iter(told["keys"].values()), "YOUR_KEY")
    if told["policy"]["note"]:
        click.echo(told["policy"]["note"])
    for class_, secret in told["keys"].items():
        click.echo(f"key of class {class_}: {secret}")
    click.echo(usage(told["listener"], key, told["model"], told["redis"]))
    click.echo(f"Stop: {stop}.")


def without_password(url: str) -> str:
    """Show a Redis URL to whoever looks over a shoulder."""
    return re.sub(r"(://[^/@:]*):[^/@]*@", r"\1:***@", url)


def usage(listener: str, key: str, model: str, redis: str) -> str:
    """Write the commands that a newcomer tries next, ready to be pasted."""
    return _USAGE.format(listener=listener, key=key, model=model, redis=redis, seawall=our_command())


def our_command() -> str:
    """Name this command as it can be called from here: by PATH, or by the path of its environment."""
    ours = Path(sys.executable).with_name("seawall")
    if shutil.which("seawall") == str(ours):
        return "seawall"
    return os.path.relpath(ours) if ours.is_relative_to(Path.cwd()) else str(ours)


_USAGE = """
Try it:

  curl {listener}/v1/chat/completions -H 'authorization: Bearer {key}' \\
    -H 'content-type: application/json' \\
    -d '{{"model": "{model}", "messages": [{{"role": "user", "content": "Hello"}}]}}'

  from openai import OpenAI
  client = OpenAI(base_url="{listener}/v1", api_key="{key}")
  for chunk in client.chat.completions.create(
      model="{model}", messages=[{{"role": "user", "content": "Hello"}}],
      stream=True, stream_options={{"include_usage": True}}):
      print(chunk)

Change a limit while traffic flows:

  {seawall} policy show > policy.yaml      # set requests_per_unit to 3
  {seawall} policy push policy.yaml        # the next request obeys
  {seawall} policy rollback                # and back

  or, without our command:
  redis-cli -u {redis} -x SET 'sw:{{policy}}:inbox' < policy.yaml

Who runs which version: {seawall} status."""
