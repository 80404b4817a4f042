"""`seawall policy`: check documents, compare them, and push, list, show and roll back versions in the store."""

import click

from seawall.cli.policy.canary import canary
from seawall.cli.policy.check import check
from seawall.cli.policy.diff import diff
from seawall.cli.policy.push import push
from seawall.cli.policy.versions import history, rollback, show


@click.group(short_help="Check, compare, push, list, show and roll back policies.")
def command() -> None:
    """Check, compare, push, list, show and roll back policies.

    \b
    Example:
      seawall policy check policy.yaml
      seawall policy diff policy.yaml
      seawall policy push policy.yaml --reason "more for acme"
      seawall policy canary policy.yaml --percent 10
      seawall policy rollback
    """


for sub in (check, diff, push, canary, history, show, rollback):
    command.add_command(sub)
