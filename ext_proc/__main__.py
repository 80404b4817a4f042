"""`python -m ext_proc`: this service alone, on the same settings as `seawall serve`."""

from seawall.cli.service_main import run

run("ext_proc")
