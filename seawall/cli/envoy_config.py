"""`seawall envoy-config`: the Envoy configuration that goes with a policy."""

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from seawall.cli.failure import Failure

if TYPE_CHECKING:
    from seawall.policy.compiled import Policy
    from seawall.serve.settings import Settings

KIND = "vllm"
"""Of engines named by --upstream; Envoy treats all kinds alike."""


@click.command(short_help="Write the Envoy configuration that goes with a policy.")
@click.option("--policy", type=click.Path(path_type=Path), help="Policy file; its engines and pools become clusters.")
@click.option(
    "--workers",
    type=click.IntRange(1, 256),
    help="Number of gate workers.  [default: what `seawall serve` would start here]",
)
@click.option("--socket-dir", help="Directory of the workers' sockets (w0.sock, w1.sock, …).")
@click.option("--socket", "sockets", multiple=True, help="A worker's socket, in place of the two above; repeatable.")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", type=click.IntRange(1, 65535), default=10000, show_default=True, help="Port to listen on.")
@click.option(
    "--admin-host",
    default="127.0.0.1",
    show_default=True,
    help="Address of the admin port: whoever reaches it can stop Envoy.",
)
@click.option("--admin-port", type=click.IntRange(1, 65535), default=9901, show_default=True, help="Admin port.")
@click.option("--upstream", "upstreams", multiple=True, help="URL of an engine for a policy without any; repeatable.")
@click.option(
    "--trusted-hops",
    type=click.IntRange(0, 16),
    default=0,
    show_default=True,
    help="Trusted proxies in front, which append to x-forwarded-for.",
)
@click.option("--access-log/--no-access-log", default=True, show_default=True, help="JSON access log on stdout.")
@click.option(
    "--out",
    help="A file; or a directory, for envoy.json with pools and routes in files that Envoy watches."
    "  [default: standard output]",
)
def command(
    policy: Path | None,
    workers: int | None,
    socket_dir: str | None,
    sockets: tuple[str, ...],
    host: str,
    port: int,
    admin_host: str,
    admin_port: int,
    upstreams: tuple[str, ...],
    trusted_hops: int,
    access_log: bool,
    out: str | None,
) -> None:
    """Write the Envoy configuration that goes with a policy, as JSON (which is YAML too).

    What Envoy and the workers must agree on is read from the workers' settings: SEAWALL_MAX_HOLD, SEAWALL_MAX_BODY,
    SEAWALL_SOCKET_DIR, SEAWALL_WORKERS, SEAWALL_POLICY, SEAWALL_UPSTREAMS, SEAWALL_ENGINE_CA.

    \b
    Example:
      seawall envoy-config --policy policy.yaml --out envoy.json
      envoy --mode validate -c envoy.json
      seawall envoy-config --policy policy.yaml --out /etc/seawall/envoy/   # SEAWALL_ENVOY_DIR
    """
    from seawall.mesh.bootstrap import bootstrap, bootstrap_json
    from seawall.mesh.settings import MeshSettings
    from seawall.policy.compile import descriptor_keys

    settings = _settings(policy, socket_dir, upstreams)
    compiled = _policy(settings)
    mesh = MeshSettings(
        sockets=sockets or tuple(settings.socket(i) for i in range(workers or settings.workers)),
        host=host,
        port=port,
        admin_host=admin_host,
        admin_port=admin_port,
        max_hold_s=settings.max_hold,
        max_body=settings.max_body,
        xff_trusted_hops=trusted_hops,
        check_interval_s=settings.check_interval,
        access_log=access_log,
    )
    descriptors = descriptor_keys(compiled)
    if out is not None and (out.endswith("/") or Path(out).is_dir()):
        directory = Path(out).absolute()
        text = bootstrap_json(bootstrap(mesh, compiled, str(directory)))
        _write_directory(directory, text, compiled, settings.engine_ca)
        return
    text = bootstrap_json(bootstrap(mesh, compiled, descriptors=descriptors, ca_file=settings.engine_ca))
    if out is None:
        click.echo(text, nl=False)
    else:
        _write(Path(out), text)


def _settings(policy: Path | None, socket_dir: str | None, upstreams: tuple[str, ...]) -> "Settings":
    from seawall.serve.settings import SettingError, from_environment

    try:
        return from_environment(
            os.environ,
            policy_file=None if policy is None else str(policy),
            socket_dir=socket_dir,
            upstreams=tuple((url, KIND) for url in upstreams) or None,
        )
    except SettingError as e:
        raise Failure(str(e)) from None


def _policy(settings: "Settings") -> "Policy":
    from seawall.cli.policy_file import compiled

    policy = compiled(settings)
    if not policy.engines:
        raise Failure("there is no engine: name some in the policy (--policy) or by --upstream URL")
    return policy


def _write_directory(directory: Path, text: str, policy: "Policy", ca_file: str) -> None:
    """Write pools and routes first: an Envoy that starts at once must find them."""
    from seawall.serve.envoy_files import write_dynamic

    try:
        directory.mkdir(parents=True, exist_ok=True)
        write_dynamic(str(directory), policy, ca_file)
    except OSError as e:
        raise Failure(f"{directory}: {e.strerror}") from None
    _write(directory / "envoy.json", text)


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, "utf-8")
    except OSError as e:
        raise Failure(f"{path}: {e.strerror}") from None
