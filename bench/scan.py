"""What looking for many rules costs: a whole prompt, a streamed delta, and compiling.

Rules are of the shape that people write (a word, a separator, letters and digits) and find nothing: the usual case.
"""

import time
from collections.abc import Callable, Sequence

from bench.tables import Goal, Say, Table, turns
from seawall.scan.builtin import BUILTIN
from seawall.scan.rules import Rule
from seawall.scan.ruleset import RuleSet, compile_rules
from seawall.scan.stream import Hold, StreamScanner

SCENARIOS = {
    "scan-text": "Scan of a prompt of 80 KB, English and Chinese",
    "scan-delta": "Scan of a streamed answer, each delta of 20 bytes",
    "scan-compile": "Compile the rules of a policy",
}
COUNTS = (1, 10, 100, 1000)
BASE, SETS, RE2 = "1 rule", "all built-in sets", "100 rules, RE2 alone"
FLAT = 2.0
GOALS = [
    Goal(SCENARIOS[name], row, BASE, FLAT)
    for name in ("scan-text", "scan-delta")
    for row in (f"{count} rules" for count in COUNTS[1:])
]
ENGLISH = (
    "A queue of requests grows where work comes in faster than it leaves; the gate says so before the engine does. "
)
CHINESE = "请求比处理得快时，队列就会变长；网关要在引擎之前说出来。"
TEXT = "".join((ENGLISH, CHINESE) * 400)[:54_000]
DELTAS = [ENGLISH[i % 80 : i % 80 + 20] for i in range(0, 20_000, 20)]


def rules(count: int) -> list[Rule]:
    return [Rule(f"r{i}", pattern=rf"\bsecret{i:04d}[-_ ][a-z0-9]{{8,32}}\b", action="mask") for i in range(count)]


def sets() -> list[Rule]:
    return [Rule(name, builtin=name, action="mask") for name in BUILTIN if name != "five_layer"]


def text_of(compiled: RuleSet) -> float:
    """Microseconds of CPU for one prompt."""
    return timed(lambda: compiled.scan(TEXT), 1)


def delta_of(compiled: RuleSet) -> float:
    """Microseconds of CPU for one delta of a stream."""

    def stream() -> None:
        scanner = StreamScanner(compiled, Hold())
        for delta in DELTAS:
            scanner.feed(delta, 0.0)
        scanner.finish(0.0)

    return timed(stream, len(DELTAS))


def timed(run: Callable[[], object], operations: int) -> float:
    began = time.process_time()
    run()
    return (time.process_time() - began) * 1e6 / operations


def run(rounds: int, only: Sequence[str], say: Say, share: float = 1.0) -> list[Table]:
    """Compile each set of rules once, take turns at using them, and give the tables."""
    compiled: dict[str, RuleSet] = {}
    took: dict[str, list[float]] = {}
    given: dict[str, Callable[[], RuleSet]] = {
        **{_name(count): lambda count=count: compile_rules(rules(count)) for count in COUNTS},  # type: ignore[misc]
        SETS: lambda: compile_rules(sets()),
        RE2: lambda: compile_rules(rules(100), "re2"),
    }
    for name, make in given.items():
        began = time.process_time()
        compiled[name] = make()
        took[name] = [(time.process_time() - began) * 1e6]
    tables = []
    for scenario, cost in (("scan-text", text_of), ("scan-delta", delta_of)):
        if scenario not in only:
            continue
        rows: dict[str, list[float]] = {name: [] for name in compiled}
        for each in compiled.values():
            cost(each)
        for round_ in range(rounds):
            for name in turns(list(compiled), round_):
                turns_taken = max(1, int(20 * share))
                rows[name].append(sum(cost(compiled[name]) for _ in range(turns_taken)) / turns_taken)
        tables.append(Table(SCENARIOS[scenario], rows, [BASE]))
        say(tables[-1].markdown())
        if scenario == "scan-text":
            size = len(TEXT.encode())
            say("MB/s: " + ", ".join(f"{name} {size / min(times):.0f}" for name, times in rows.items()) + "\n")
    if "scan-compile" in only:
        tables.append(Table(SCENARIOS["scan-compile"], took, [BASE]))
        say(tables[-1].markdown())
    return tables


def _name(count: int) -> str:
    return BASE if count == 1 else f"{count} rules"
