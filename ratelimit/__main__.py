"""`python -m ratelimit`: this service alone. With RUNTIME_ROOT it takes the place of envoyproxy/ratelimit."""

from ratelimit.environment import flags, warnings
from seawall.cli.service_main import run

run("ratelimit", flags, warnings)
