"""Run the benchmarks: `python -m bench`, or `make bench`."""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench import code, envoy, golang, push, rpc, scan, syscalls
from bench.tables import Bound, Goal, Kept, judged, keep, machine

ENOUGH = 5
"""Rounds below which a run is a trial: printed, and not kept."""
TRIAL = 0.01
"""Share of each load in a trial."""
PARTS: dict[str, Sequence[str]] = {
    "code": tuple(code.SCENARIOS),
    "rpc": tuple(rpc.SCENARIOS),
    "envoy": tuple(envoy.SCENARIOS),
    "syscalls": tuple(syscalls.SCENARIOS),
    "push": tuple(push.SCENARIOS),
    "scan": tuple(scan.SCENARIOS),
}
UNASKED = {"small"}
"""Scenarios that run only where they are named."""


def say(text: str) -> None:
    print(text, flush=True)


def wanted(only: Sequence[str]) -> dict[str, list[str]]:
    """Scenarios to run, by part, in their order; `only` names parts and scenarios."""
    found = {
        part: [one for one in scenarios if one in only or (part in only and one not in UNASKED)]
        for part, scenarios in PARTS.items()
    }
    return {part: scenarios for part, scenarios in found.items() if scenarios}


def file_name(part: str, scenarios: Sequence[str], setting: dict[str, Any]) -> str:
    """What a kept run is called, beside date and commit: the part, the scenarios if not all, what was unusual."""
    words = [part, *(scenarios if list(scenarios) != wanted([part])[part] else ())]
    return "-".join([*words, *(word for word in ("valkey", "python") if word in setting.values())])


def measured(part: str, scenarios: list[str], options: argparse.Namespace, peers: Path | None) -> Sequence[Kept]:
    """Run one part; its tables."""
    rounds, share = (1, TRIAL) if options.trial else (options.rounds, 1.0)
    if part == "syscalls":
        return syscalls.run(scenarios, peers, say, max(5, int(syscalls.OPERATIONS * share)))
    goals: Sequence[Goal | Bound]
    if part == "code":
        tables, goals = (
            code.run(rounds, scenarios, say, profiled=options.profile, slices=max(1, int(code.SLICES * share))),
            code.GOALS,
        )
    elif part == "rpc":
        tables, goals = rpc.run(rounds, scenarios, peers, say, share), rpc.GOALS
    elif part == "scan":
        tables, goals = scan.run(rounds, scenarios, say, share), scan.GOALS
    elif part == "envoy":
        tables, goals = envoy.run(rounds, scenarios, options.store, peers, say, share), envoy.GOALS
    else:
        tables, goals = push.run(peers, say, max(2, int(push.PUSHES * share))), push.GOALS
    if not options.trial:
        say(judged(goals, tables))
    return tables


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench", description="What our services cost, as ratios inside interleaved rounds."
    )
    parser.add_argument("--rounds", type=int, default=ENOUGH, help="default: %(default)s")
    names = list(dict.fromkeys([*PARTS, *(name for scenarios in PARTS.values() for name in scenarios)]))
    parser.add_argument(
        "--only",
        nargs="+",
        choices=names,
        default=list(PARTS),
        help=f"{', '.join(names)}; default: all",
        metavar="NAME",
    )
    parser.add_argument("--store", choices=("memory", "valkey"), default="memory", help="of the workers behind Envoy")
    parser.add_argument("--no-go", action="store_true", help="as if there were no Go here")
    parser.add_argument("--profile", action="store_true", help="own code by function, too")
    parser.add_argument(
        "--trial", action="store_true", help="whether it runs here: a hundredth of each load, kept nowhere"
    )
    options = parser.parse_args()
    peers = None if options.no_go else golang.built() if options.trial else golang.build()
    told = machine()
    say(", ".join(f"{name} {value}" for name, value in told.items() if value is not None) + "\n")
    peer = "python" if peers is None else "go"
    settings: dict[str, dict[str, Any]] = {
        "code": {"rounds": options.rounds},
        "rpc": {"rounds": options.rounds, "load": peer},
        "envoy": {
            "rounds": options.rounds,
            "store": options.store,
            "upstream": "simulator" if peers is None else "go",
        },
        "scan": {"rounds": options.rounds},
        "syscalls": {"operations": syscalls.OPERATIONS},
        "push": {"pushes": push.PUSHES, "upstream": "simulator" if peers is None else "go"},
    }
    for part, scenarios in wanted(options.only).items():
        tables = measured(part, scenarios, options, peers)
        setting = settings[part]
        if options.trial:
            continue
        if setting.get("rounds", ENOUGH) < ENOUGH:
            say(f"not kept: fewer than {ENOUGH} rounds\n")
        elif tables:
            path = keep(file_name(part, scenarios, setting), tables, {**setting, "machine": told})
            say(f"kept: bench/results/{path.name}\n")


if __name__ == "__main__":
    main()
