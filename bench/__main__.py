"""Run the benchmarks: `python -m bench`, or `make bench`."""

import argparse
from collections.abc import Sequence

from bench import code, envoy, golang, rpc
from bench.tables import Table, judged, keep, machine

ENOUGH = 5
"""Rounds below which a run is a trial: printed, and not kept."""
PARTS = {"code": tuple(code.SCENARIOS), "rpc": tuple(rpc.SCENARIOS), "envoy": tuple(envoy.SCENARIOS)}


def say(text: str) -> None:
    print(text, flush=True)


def kept(part: str, only: Sequence[str], tables: Sequence[Table], setting: dict[str, object]) -> None:
    """Keep the figures of a run, unless it was too short to tell anything."""
    if not isinstance(setting["rounds"], int) or setting["rounds"] < ENOUGH:
        say(f"not kept: fewer than {ENOUGH} rounds\n")
        return
    words = [part, *(only if set(only) != set(PARTS[part]) else ())]
    words += [word for word in ("valkey", "python") if word in setting.values()]
    say(f"kept: bench/results/{keep('-'.join(words), tables, setting).name}\n")


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench", description="CPU of calls, messages and requests, as ratios inside interleaved rounds."
    )
    names = [*PARTS, *(name for scenarios in PARTS.values() for name in scenarios)]
    parser.add_argument("--rounds", type=int, default=ENOUGH, help="default: %(default)s")
    parser.add_argument(
        "--only", nargs="+", choices=names, default=list(PARTS), help="parts or scenarios; default: all"
    )
    parser.add_argument("--store", choices=("memory", "valkey"), default="memory", help="of the workers behind Envoy")
    parser.add_argument("--no-go", action="store_true", help="as if there were no Go here")
    parser.add_argument("--profile", action="store_true", help="own code by function, after the figures")
    options = parser.parse_args()
    wanted = {
        part: [name for name in scenarios if part in options.only or name in options.only]
        for part, scenarios in PARTS.items()
    }
    peers = None if options.no_go else golang.build()
    told = machine()
    say(", ".join(f"{name} {value}" for name, value in told.items() if value is not None) + "\n")
    if only := wanted["code"]:
        tables = code.run(options.rounds, only, say, profiled=options.profile)
        say(judged(code.GOALS, tables))
        kept("code", only, tables, {"rounds": options.rounds, "machine": told})
    if only := wanted["rpc"]:
        tables = rpc.run(options.rounds, only, peers, say)
        say(judged(rpc.GOALS, tables))
        load = "python" if peers is None else "go"
        kept("rpc", only, tables, {"rounds": options.rounds, "load": load, "machine": told})
    if only := wanted["envoy"]:
        tables = envoy.run(options.rounds, only, options.store, peers, say)
        say(judged(envoy.GOALS, tables))
        engine = "simulator" if peers is None else "go"
        setting = {"rounds": options.rounds, "store": options.store, "upstream": engine, "machine": told}
        kept("envoy", only, tables, setting)


if __name__ == "__main__":
    main()
