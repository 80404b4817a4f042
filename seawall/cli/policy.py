"""`seawall policy`: check documents, and push, list, show and roll back versions in the store."""

import asyncio
import getpass
import json
import socket
import sys
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from seawall.cli.failure import Failure

if TYPE_CHECKING:
    from seawall.policy.load import Loaded
    from seawall.policy.mistake import PolicyError
    from seawall.store.contract import ControlPath, VersionInfo

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])

_STORE = click.option("--store", metavar="URL", help="Store to use; else SEAWALL_STORE, else the running `seawall up`.")
_JSON = click.option("--json", "as_json", is_flag=True, help="Print one JSON value.")
_MAX_BODY = click.option(
    "--max-body",
    envvar="SEAWALL_MAX_BODY",
    default="8MiB",
    show_default=True,
    metavar="SIZE",
    help="Largest body that Envoy buffers (SEAWALL_MAX_BODY).",
)


@click.group(short_help="Check, push, list, show and roll back policies.")
def command() -> None:
    """Check, push, list, show and roll back policies.

    \b
    Example:
      seawall policy check policy.yaml
      seawall policy push policy.yaml --reason "more for acme"
      seawall policy rollback
    """


@command.command()
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@_MAX_BODY
@_JSON
def check(files: tuple[str, ...], max_body: str, as_json: bool) -> None:
    """Say whether documents are valid, and who charges each limit; `-` is standard input.

    Needs no store. All mistakes are printed, each with its line and column; exit code 1 if there is one.

    \b
    Example:
      seawall policy check policy.yaml
      seawall policy check --json a.yaml b.yaml
    """
    from seawall.policy.compile import build_policy, charged_by
    from seawall.policy.mistake import PolicyError

    results: list[dict[str, Any]] = []
    failed: list[str] = []
    for name in files:
        file, text = _read(name)
        try:
            loaded = _load(text, file, max_body)
            build_policy(loaded, "")
        except PolicyError as e:
            results.append({"file": file, "ok": False, "mistakes": [m.as_dict() for m in e.mistakes]})
            failed.append(str(e))
            continue
        limits = charged_by(loaded.document)
        charged = [{"limit": limit, "charged_by": who} for limit, who in limits]
        results.append({"file": file, "ok": True, "needs": loaded.needs, "limits": charged, "mistakes": []})
        if not as_json:
            click.echo(f"{file}: ok")
            for limit, who in limits:
                click.echo(f"  limit {limit}: charged by {who}")
    if as_json:
        click.echo(json.dumps({"ok": not failed, "files": results}, indent=2))
        if failed:
            raise SystemExit(1)
    if failed:
        raise Failure("not valid\n" + "\n".join(failed))


@command.command()
@click.argument("file", metavar="FILE")
@click.option("--if-current", type=click.IntRange(0), metavar="N", help="Only if N is the current version.")
@click.option("--author", help="Who changes it; default: you at this host.")
@click.option("--reason", default="", help="Why, for the history.")
@_MAX_BODY
@_STORE
@_JSON
def push(
    file: str,
    if_current: int | None,
    author: str | None,
    reason: str,
    max_body: str,
    store: str | None,
    as_json: bool,
) -> None:
    """Make a document the current version; `-` is standard input.

    A document with mistakes, one that equals the current version, or with --if-current a race lost to another author is
    refused, and nothing changes.

    \b
    Example:
      seawall policy push policy.yaml --reason "more for acme"
      sed 's/600/60/' policy.yaml | seawall policy push - --if-current 3
    """
    from seawall.policy.compile import build_policy, digest_of
    from seawall.policy.mistake import PolicyError

    name, raw = _read(file)
    try:
        loaded = _load(raw, name, max_body)
        if loaded.root is None:
            # Valid, and it would lock everybody out: most likely a pipe whose first command failed.
            raise Failure(f"{name}: the document is empty; nothing changed")
        text = raw.decode("utf-8")
        build_policy(loaded, digest_of(text))
    except PolicyError as e:
        raise _refused(e) from None

    async def go(control: "ControlPath") -> int:
        return await control.push(
            text,
            digest=digest_of(text),
            author=author or _author(),
            reason=reason,
            needs=loaded.needs,
            if_current=if_current,
        )

    version = _ask(store, go)
    click.echo(json.dumps({"version": version, "needs": loaded.needs}) if as_json else f"version {version} is current")


@command.command()
@click.option("-n", "count", type=click.IntRange(1, 200), default=20, show_default=True, help="How many, newest first.")
@_STORE
@_JSON
def history(count: int, store: str | None, as_json: bool) -> None:
    """List kept versions, newest first; `*` marks the current one.

    \b
    Example:
      seawall policy history -n 5
    """
    versions = _ask(store, lambda control: control.history(count))
    if as_json:
        click.echo(json.dumps([_info(v) for v in versions], indent=2))
        return
    if not versions:
        click.echo("no policy has been pushed")
    for v in versions:
        when = datetime.fromtimestamp(v.time, UTC).strftime("%Y-%m-%d %H:%M:%SZ")
        mark = "*" if v.current else " "
        click.echo(f"{mark} {v.version:>4}  {when}  {v.digest[:12]}  {_line(v.author)}  {_line(v.reason)}".rstrip())


@command.command()
@click.argument("version", type=click.IntRange(1), required=False)
@_STORE
@_JSON
def show(version: int | None, store: str | None, as_json: bool) -> None:
    """Print a version as it was pushed, the current one by default; --json prints what is known of it.

    \b
    Example:
      seawall policy show > policy.yaml
      seawall policy show 3 --json
    """

    async def go(control: "ControlPath") -> "tuple[str, VersionInfo]":
        wanted = version if version is not None else await control.current()
        if wanted is None:
            raise Failure("no policy has been pushed")
        return await control.document(wanted)

    text, info = _ask(store, go)
    if as_json:
        click.echo(json.dumps(_info(info), indent=2))
    else:
        click.echo(text.encode("utf-8"), nl=False)


@command.command()
@click.argument("version", type=click.IntRange(1), required=False)
@click.option("--author", help="Who changes it; default: you at this host.")
@click.option("--reason", default="", help="Why, for the history.")
@_STORE
@_JSON
def rollback(version: int | None, author: str | None, reason: str, store: str | None, as_json: bool) -> None:
    """Make a kept version current again; without VERSION the one that was current before.

    \b
    Example:
      seawall policy rollback --reason "too strict"
      seawall policy rollback 3
    """
    now = _ask(store, lambda control: control.rollback(version, author=author or _author(), reason=reason))
    click.echo(json.dumps({"version": now}) if as_json else f"version {now} is current")


def _read(name: str) -> tuple[str, bytes]:
    """Name to show and bytes of a document: at most one byte more than is allowed, so that `load` judges the size."""
    from seawall.policy.reader import MAX_BYTES

    if name == "-":
        return "stdin", sys.stdin.buffer.read(MAX_BYTES + 1)
    try:
        with Path(name).open("rb") as f:
            return name, f.read(MAX_BYTES + 1)
    except OSError as e:
        raise Failure(f"{name}: {e.strerror or e}") from None


def _load(text: bytes, file: str, max_body: str) -> "Loaded":
    from seawall.policy.load import load
    from seawall.policy.notation import size

    try:
        most = size(max_body)
    except ValueError as e:
        raise Failure(f"--max-body (SEAWALL_MAX_BODY) is not {e}") from None
    return load(text, file=file, max_body=most)


def _refused(error: "PolicyError") -> Failure:
    return Failure(f"not pushed, nothing changed\n{error}")


def _ask(store: str | None, question: "Callable[[ControlPath], Coroutine[Any, Any, T]]") -> T:
    """Ask the store once, and fail in one line."""
    from seawall.cli.connection import open_control
    from seawall.store.contract import Conflict, StoreUnavailable, UnknownVersion

    async def go() -> T:
        async with open_control(store) as control:
            return await question(control)

    try:
        return asyncio.run(go())
    except Conflict as e:
        raise Failure(str(e)) from None
    except UnknownVersion as e:
        raise Failure(f"{e} (`seawall policy history` lists the kept versions)") from None
    except StoreUnavailable as e:
        raise Failure(f"the store gave no answer: {e}") from None


def _info(v: "VersionInfo") -> dict[str, Any]:
    return {
        "version": v.version,
        "current": v.current,
        "digest": v.digest,
        "author": v.author,
        "reason": v.reason,
        "time": v.time,
        "needs": v.needs,
    }


def _line(text: str) -> str:
    """Keep an author's words on one line, without control characters that a terminal would obey."""
    return "".join(c if c.isprintable() else " " for c in text)


def _author() -> str:
    try:
        user = getpass.getuser()
    except (OSError, KeyError):
        user = "unknown"
    return f"{user}@{socket.gethostname()}"
