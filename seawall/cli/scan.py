"""`seawall scan`: try a policy's rules on texts."""

import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from seawall.cli.failure import Failure

if TYPE_CHECKING:
    from seawall.scan.rules import Found, Rule
    from seawall.scan.sides import Scanning

MAX_TEXT = 64 * 1024 * 1024
ROUNDS = 5


@click.group(short_help="Try a policy's scan rules on a text.")
def command() -> None:
    """Try a policy's scan rules on a text.

    \b
    Example:
      seawall scan test --policy policy.yaml --text 'card 4111 1111 1111 1111'
    """


@command.command()
@click.argument("file", required=False, metavar="[FILE]")
@click.option("--policy", required=True, metavar="FILE", help="Policy with the section `scan`; `-` is standard input.")
@click.option("--text", help="Text to look through, in place of FILE.")
@click.option("--rule", "ids", multiple=True, metavar="ID", help="Only this rule; repeatable.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON value.")
def test(file: str | None, policy: str, text: str | None, ids: tuple[str, ...], as_json: bool) -> None:
    """Show what a policy's rules find in a text, what masking makes of it, and the time that each rule takes.

    FILE is UTF-8, `-` is standard input. What was found is printed: it is your own text. Exit code 1 if a rule blocks
    the text.

    \b
    Example:
      seawall scan test --policy policy.yaml --text 'card 4111 1111 1111 1111'
      seawall scan test --policy policy.yaml --rule secrets answer.txt
    """
    if (file is None) == (text is None):
        raise click.UsageError("give either FILE or --text")
    if policy == "-" and file == "-":
        raise click.UsageError("only one of the policy and the text can be standard input")
    from seawall.scan.ruleset import compile_rules

    rules, scanning = _rules(policy, ids)
    content = text if text is not None else _text(str(file))
    tried = [_try(rule, content) for rule in rules]
    found = compile_rules(rules).scan(content)
    if as_json:
        click.echo(json.dumps(_as_data(content, tried, found, scanning), indent=2, ensure_ascii=False))
    else:
        _show(content, tried, found, scanning)
    if faults := [fault for fault in found.faults if fault.rule is not None]:
        raise Failure("\n".join(f"rule '{fault.rule.id}' failed: {fault.why}" for fault in faults if fault.rule))
    if (blocked := found.blocks) is not None:
        rule = blocked.rule
        raise Failure(f"rule '{rule.id}' blocks this text" if rule is not None else "the scanner failed")


class Tried(NamedTuple):
    """A rule on the text alone: hits, and microseconds of its fastest round."""

    rule: "Rule"
    hits: int
    microseconds: float


def _try(rule: "Rule", content: str) -> Tried:
    from seawall.scan.ruleset import compile_rules

    compiled = compile_rules([rule])
    times = []
    hits = 0
    for _ in range(ROUNDS):
        began = time.perf_counter()
        hits = len(compiled.spans(content))
        times.append(time.perf_counter() - began)
    return Tried(rule, hits, min(times) * 1e6)


def _rules(policy: str, ids: tuple[str, ...]) -> "tuple[list[Rule], Scanning]":
    from seawall.policy.load import load
    from seawall.policy.mistake import PolicyError
    from seawall.policy.reader import MAX_BYTES
    from seawall.policy.scanning import ScanningDocument, compile_scan, rules_of
    from seawall.scan.rules import RuleError

    try:
        document = load(
            _read(policy, MAX_BYTES + 1), file="stdin" if policy == "-" else policy, model=ScanningDocument
        ).document
        scanning = compile_scan(document)
    except PolicyError as e:
        raise Failure(f"not valid\n{e}") from None
    except RuleError as e:
        raise Failure(f"{policy}: {e}") from None
    if scanning is None or not isinstance(document, ScanningDocument):
        raise Failure(f"{policy}: has no rules in its section 'scan'")
    rules = rules_of(document.scan)
    if unknown := sorted(set(ids) - {rule.id for rule in rules}):
        raise Failure(f"{policy}: has no rule '{unknown[0]}'; it has {', '.join(rule.id for rule in rules)}")
    return [rule for rule in rules if not ids or rule.id in ids], scanning


def _read(name: str, most: int) -> bytes:
    if name == "-":
        return sys.stdin.buffer.read(most)
    try:
        with Path(name).open("rb") as f:
            return f.read(most)
    except OSError as e:
        raise Failure(f"{name}: {e.strerror or e}") from None


def _text(name: str) -> str:
    data = _read(name, MAX_TEXT + 1)
    if len(data) > MAX_TEXT:
        raise Failure(f"{name}: more than {MAX_TEXT >> 20} MiB")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        raise Failure(f"{name}: not UTF-8") from None


def _as_data(content: str, tried: list[Tried], found: "Found", scanning: "Scanning") -> dict[str, Any]:
    return {
        "hits": [
            {
                "rule": hit.rule.id,
                "action": hit.rule.action,
                "start": hit.start,
                "end": hit.end,
                "text": content[hit.start : hit.end],
            }
            for hit in found.hits
        ],
        "rules": [
            {
                "rule": one.rule.id,
                "on": list(one.rule.on),
                "action": one.rule.action,
                "hits": one.hits,
                "microseconds": round(one.microseconds, 1),
            }
            for one in tried
        ],
        "masked": _masked(content, found),
        "late": [{"rule": rule, "bytes": size} for rule, size in _late(tried, scanning)],
    }


def _masked(content: str, found: "Found") -> str:
    from seawall.scan.mask import mask

    return mask(content, found.hits)


def _late(tried: list[Tried], scanning: "Scanning") -> list[tuple[str, int | None]]:
    known = {one.rule.id for one in tried}
    return [(rule, size) for rule, size in scanning.late() if rule in known]


def _show(content: str, tried: list[Tried], found: "Found", scanning: "Scanning") -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(highlight=False, width=None if sys.stdout.isatty() else 200)
    if found.hits:
        hits = Table(box=None, pad_edge=False)
        for name in ("rule", "action", "at", "match"):
            hits.add_column(name, no_wrap=name != "match", overflow="fold")
        for hit in found.hits:
            match = content[hit.start : hit.end]
            hits.add_row(hit.rule.id, hit.rule.action, f"{hit.start}-{hit.end}", Text(_line(match)))
        console.print(hits)
    else:
        console.print("no rule matches")
    if any(hit.rule.action == "mask" for hit in found.hits):
        console.print("\nmasked:")
        console.print(Text(_masked(content, found)), soft_wrap=True)
    times = Table(box=None, pad_edge=False)
    for name in ("rule", "on", "action"):
        times.add_column(name)
    for name in ("hits", "µs"):
        times.add_column(name, justify="right")
    for one in tried:
        times.add_row(one.rule.id, ", ".join(one.rule.on), one.rule.action, str(one.hits), f"{one.microseconds:.1f}")
    console.print()
    console.print(times)
    for rule, size in _late(tried, scanning):
        length = "any number of" if size is None else str(size)
        console.print(
            f"\nrule '{rule}': in a stream it may take {length} bytes until a match is known, and only "
            f"{scanning.hold.size} are held back (scan.hold.size): the first ones may leave",
            soft_wrap=True,
        )


def _line(text: str) -> str:
    """Keep a match on one line, without control characters that a terminal would obey."""
    return "".join(
        c if c.isprintable() else "\N{SYMBOL FOR NEWLINE}" if c == "\n" else "\N{REPLACEMENT CHARACTER}" for c in text
    )
