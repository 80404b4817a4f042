"""`seawall sim`: one simulated engine in the foreground."""

import asyncio
import errno
import signal
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

import click

from seawall.cli.failure import Failure

if TYPE_CHECKING:
    from seawall.sim.engine import Settings


@click.command(short_help="Run a simulated inference engine.")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option(
    "--port", type=click.IntRange(0, 65535), default=8000, show_default=True, help="Port; 0 takes a free one."
)
@click.option(
    "--model", "models", multiple=True, default=["sim-chat"], show_default=True, help="Model name; may be repeated."
)
@click.option("--name", default="engine-0", show_default=True, help="Name sent back in `x-engine`.")
@click.option("--seed", type=int, default=1, show_default=True, help="Equal seeds give equal answers.")
@click.option("--ttft", type=click.FloatRange(0), default=0.02, show_default=True, help="Seconds to the first token.")
@click.option("--tpot", type=click.FloatRange(0), default=0.005, show_default=True, help="Seconds to each next token.")
@click.option(
    "--max-num-seqs", type=click.IntRange(1), default=256, show_default=True, help="Requests that run at once."
)
def command(
    host: str, port: int, models: tuple[str, ...], name: str, seed: int, ttft: float, tpot: float, max_num_seqs: int
) -> None:
    """Run a simulated inference engine: vLLM's OpenAI API and metric names, answers made from a seed.

    Prints "READY http://HOST:PORT" once it listens; ends on SIGTERM and Ctrl-C. What it received is at GET /sim/state,
    faults are set by PUT /sim/faults.

    \b
    Example:
      seawall sim --port 8001 --model sim-chat --tpot 0.01
      curl -X PUT localhost:8001/sim/faults -d '{"error": 503, "times": 2}'
    """
    from seawall.sim.engine import Settings

    settings = Settings(name, models, seed=seed, ttft=ttft, tpot=tpot, max_num_seqs=max_num_seqs)
    asyncio.run(_serve(settings, host, port))


async def _serve(settings: "Settings", host: str, port: int) -> None:
    """Serve until a signal says stop."""
    from seawall.sim.app import serving

    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with AsyncExitStack() as stack:
        try:
            url = await stack.enter_async_context(serving(settings, host, port))
        except OSError as error:
            taken = error.errno == errno.EADDRINUSE
            reason = "the port is already in use" if taken else error.strerror or str(error)
            raise Failure(f"cannot listen on {host}:{port}: {reason}") from None
        click.echo(f"READY {url}")
        await stop.wait()
