"""`seawall key`: API keys, in the store or for a policy."""

import click

from seawall.cli.key.hashing import hash_
from seawall.cli.key.stored import add, list_, revoke


@click.group(short_help="Issue, revoke, list and hash API keys.")
def command() -> None:
    """Issue, revoke, list and hash API keys.

    A key that is added here is kept in the store and known to all workers within a second. A policy can hold keys too, by
    their hash.

    \b
    Example:
      seawall key add --tenant acme --expires 90d
      seawall key list --tenant acme
      seawall key revoke acme-3f9c2a
    """


for sub in (add, revoke, list_, hash_):
    command.add_command(sub)
