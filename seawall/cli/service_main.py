"""One service on its own: what `python -m ext_authz`, `ratelimit` and `ext_proc` share."""

import os
import sys
from collections.abc import Callable, Mapping
from typing import Any

import click

from seawall.cli.failure import Failure
from seawall.cli.serve import supervise
from seawall.serve.settings import SettingError, from_environment


def run(
    service: str,
    flags: Callable[[Mapping[str, str]], dict[str, Any]] = lambda _: {},
    warnings: Callable[[Mapping[str, str]], list[str]] = lambda _: [],
) -> None:
    """Supervise workers that carry one service, settings by environment (docs/settings.md); ends the process.

    `flags` reads further variables of the environment and gives settings by name, `warnings` what of it does nothing.
    """
    if sys.argv[1:] in (["-h"], ["--help"]):
        click.echo(f"Usage: python -m {service}\n\n  Settings come from the environment: see docs/settings.md.")
        sys.exit(0)
    try:
        settings = from_environment(os.environ, services=(service,), **flags(os.environ))
        for line in warnings(os.environ):
            click.echo(f"seawall: {line}", err=True)
        sys.exit(supervise(settings))
    except SettingError as e:
        Failure(str(e)).show()
        sys.exit(1)
    except Failure as e:
        e.show()
        sys.exit(1)
