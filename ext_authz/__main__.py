"""`python -m ext_authz`: this service alone, on the same settings as `seawall serve`."""

from seawall.cli.service_main import run

run("ext_authz")
