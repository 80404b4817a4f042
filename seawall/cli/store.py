"""A question to the store: asked once, failing in one line; and the words that go with every change."""

import asyncio
import getpass
import json
import socket
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeVar

import click

from seawall.cli.failure import Failure

if TYPE_CHECKING:
    from seawall.store.contract import Control

T = TypeVar("T")

STORE = click.option("--store", metavar="URL", help="Store to use; else SEAWALL_STORE, else the running `seawall up`.")
JSON = click.option("--json", "as_json", is_flag=True, help="Print one JSON value.")
AUTHOR = click.option("--author", help="Who changes it; default: you at this host.")
REASON = click.option("--reason", default="", help="Why, for the history.")
IF_CURRENT = click.option("--if-current", type=click.IntRange(0), metavar="N", help="Only if N is the current version.")


def ask(store: str | None, question: "Callable[[Control], Coroutine[Any, Any, T]]") -> T:
    """Ask the store once. Raises Failure."""
    from seawall.cli.connection import open_control
    from seawall.store.contract import Conflict, StoreUnavailable, UnknownVersion
    from seawall.store.key_contract import UnknownKey

    async def go() -> T:
        async with open_control(store) as control:
            return await question(control)

    try:
        return asyncio.run(go())
    except Conflict as e:
        raise Failure(str(e)) from None
    except UnknownVersion as e:
        raise Failure(f"{e} (`seawall policy history` lists the kept versions)") from None
    except UnknownKey as e:
        raise Failure(f"{e} (`seawall key list --all` lists them)") from None
    except StoreUnavailable as e:
        raise Failure(f"the store gave no answer: {e}") from None


def author_or_me(given: str | None) -> str:
    """Give the author of a change."""
    if given:
        return given
    try:
        user = getpass.getuser()
    except (OSError, KeyError):
        user = "unknown"
    return f"{user}@{socket.gethostname()}"


def echo_json(value: Any) -> None:
    """Print one JSON value."""
    click.echo(json.dumps(value, indent=2))


def one_line(text: str) -> str:
    """Keep an author's words on one line, without control characters that a terminal would obey."""
    return "".join(c if c.isprintable() else " " for c in text)


def moment(at: float) -> str:
    """Write a time (unix seconds) for people."""
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%SZ")
