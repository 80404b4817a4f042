"""`seawall serve`: supervisor and workers in the foreground."""

import asyncio
import os
import sys
from pathlib import Path

import click

from seawall.cli.failure import Failure
from seawall.cli.policy_file import compiled
from seawall.serve.settings import SERVICES, SettingError, Settings, from_environment, unknown_variables
from seawall.serve.supervisor import Supervisor
from seawall.serve.worker import certificates


@click.command()
@click.option("--policy", "policy_file", metavar="FILE", help="Policy for a store that has none yet. [SEAWALL_POLICY]")
@click.option("--store", metavar="URL", help="memory, redis://host:port/db or unix:///path. [SEAWALL_STORE]")
@click.option("--workers", type=int, help="Worker processes; default: one a core. [SEAWALL_WORKERS]")
@click.option("--socket-dir", metavar="DIR", help="Where the workers' sockets are made. [SEAWALL_SOCKET_DIR]")
@click.option("--http", metavar="HOST:PORT", help="Address of /metrics, /healthz, /readyz, /version. [SEAWALL_HTTP]")
@click.option("--grace", type=float, help="Seconds that running streams have on SIGTERM. [SEAWALL_GRACE]")
@click.option(
    "--listen", metavar="ADDRESS", help="host:port or unix:/path for meshes that know one address. [SEAWALL_LISTEN]"
)
@click.option("--transport", type=click.Choice(["own", "grpcio"]), help="gRPC stack. [SEAWALL_TRANSPORT]")
@click.option("--service", "services", multiple=True, type=click.Choice(SERVICES), help="Run only these; default: all.")
def command(
    policy_file: str | None,
    store: str | None,
    workers: int | None,
    socket_dir: str | None,
    http: str | None,
    grace: float | None,
    listen: str | None,
    transport: str | None,
    services: tuple[str, ...],
) -> None:
    """Run the gate workers and the supervisor that keeps them.

    SIGTERM drains: workers turn NOT_SERVING, finish running streams and go. SIGINT stops at once. SIGHUP replaces the
    workers one by one ('seawall restart').

    \b
    Example:
      SEAWALL_STORE=redis://10.0.0.5:6379 seawall serve --policy policy.yaml --workers 4
    """
    try:
        settings = from_environment(
            os.environ,
            policy_file=policy_file,
            store=store,
            workers=workers,
            socket_dir=socket_dir,
            http=http,
            grace=grace,
            listen=listen,
            transport=transport,
            services=services or None,
        )
    except SettingError as e:
        raise Failure(str(e)) from None
    sys.exit(supervise(settings))


def supervise(settings: Settings) -> int:
    """Check the policy file, then run the supervisor; the exit status. Raises Failure."""
    if settings.policy_file is not None:
        compiled(settings)
    elif settings.store == "memory" and not settings.without_policy:
        raise Failure("with the store 'memory' a policy file is needed: --policy FILE or SEAWALL_POLICY")
    try:
        certificates(settings)
    except ValueError as e:
        raise Failure(f"SEAWALL_TLS_CERT: {e}") from None
    if settings.socket_dir:
        try:
            Path(settings.socket_dir).mkdir(parents=True, exist_ok=True)
        except OSError as e:
            raise Failure(f"SEAWALL_SOCKET_DIR: '{settings.socket_dir}' can't be made: {e.strerror}") from None
    for name in unknown_variables(os.environ):
        click.echo(f"seawall: {name} is set, but there is no such setting (docs/settings.md)", err=True)
    return asyncio.run(Supervisor(settings).run())
