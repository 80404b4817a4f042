"""`python -m seawall` is the `seawall` command."""

from seawall.cli.main import main

main(prog_name="seawall")
