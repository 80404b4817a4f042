"""`seawall key hash`: a key is never an argument, the shell's history would keep it."""

import hashlib
import json
import secrets
import sys

import click

from seawall.cli.failure import Failure

_LONGEST = 4096


@click.command("hash")
@click.option("--new", is_flag=True, help="Make a new key, print it once and its hash.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON value.")
def hash_(new: bool, as_json: bool) -> None:
    """Print the SHA-256 of an API key, the form in which a policy knows it.

    The key is read from standard input, hidden when that is a terminal; white space around it is no part of it.

    \b
    Example:
      seawall key hash --new
      printf %s "$KEY" | seawall key hash
    """
    key = new_key() if new else _read()
    digest = sha256_of(key)
    if as_json:
        click.echo(json.dumps({"key": key, "sha256": digest} if new else {"sha256": digest}))
    elif new:
        click.echo(f"key:    {key}\nsha256: {digest}")
        click.echo("The key is not kept anywhere: give it to its user now, put the sha256 in the policy.", err=True)
    else:
        click.echo(digest)


def new_key() -> str:
    """Make a key: 256 random bits."""
    return f"sk-{secrets.token_urlsafe(32)}"


def sha256_of(key: str) -> str:
    """Hash a key, hex."""
    return hashlib.sha256(key.encode()).hexdigest()


def _read() -> str:
    if sys.stdin.isatty():
        text: str = click.prompt("API key", hide_input=True, err=True)
    else:
        raw = sys.stdin.buffer.read(_LONGEST + 1)
        if len(raw) > _LONGEST:
            raise Failure(f"a key has at most {_LONGEST} bytes")
        text = raw.decode("utf-8", "replace")
    key = text.strip()
    # What a client can't send in a header, the gate could never see.
    if not key or "," in key or not all("!" <= c <= "~" for c in key):
        raise Failure("no key was read: printable ASCII without spaces and commas is expected on standard input")
    return key
