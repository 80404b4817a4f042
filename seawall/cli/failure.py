"""How a command fails: one clear line on stderr and exit code 1."""

import click


class Failure(click.ClickException):
    """Ends the command with exit code 1; the message is one line, or one line for each mistake."""

    exit_code = 1

    def show(self, file: object = None) -> None:
        """Write to stderr with our name in front, as other tools do."""
        click.echo(f"seawall: {self.message}", err=True)
