"""Entry point of the `seawall` command. Subcommands live in modules of their own, so that `--help` stays quick."""

import importlib

import click

from seawall import __version__

COMMANDS = {
    "serve": "Run the gate workers and their supervisor.",
    "up": "Start a whole gate here: Valkey, engines, workers and a real Envoy.",
    "down": "Stop the gate that `seawall up --detach` left running.",
    "restart": "Replace the workers one by one: new code, no request lost.",
    "status": "Show workers, policy versions and pools.",
    "policy": "Check, compare, push, list, show and roll back policies.",
    "scan": "Try a policy's scan rules on a text.",
    "key": "Issue, revoke, list and hash API keys.",
    "envoy-config": "Write the Envoy configuration that goes with a policy.",
    "sim": "Run a simulated inference engine.",
}


class Commands(click.Group):
    """Loads `seawall.cli.<command>` on demand; each module has one `command`."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Keep the order of the table."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the module of a known command."""
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"seawall.cli.{cmd_name.replace('-', '_')}")
        command: click.Command = module.command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List commands without importing any of them."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.command(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="seawall")
def main() -> None:
    """Keep LLM inference inside its latency SLO, behind your Envoy or nginx.

    \b
    Example:
      seawall up                       a whole gate on this machine
      seawall policy push policy.yaml  change it while traffic flows

    Exit codes: 0 done, 1 it failed (one line says why), 2 wrong usage.
    """
