"""Differences on the screen, grouped by when they come."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from seawall.policy.diff import Difference

SHOWN = 40
"""Lines of each group that a push shows; `seawall policy diff` shows all."""


def as_json(found: "Sequence[Difference]") -> list[dict[str, Any]]:
    """Differences by name, for --json."""
    return [{"section": d.section, "change": d.text, "envoy": d.envoy, "follows_tenant": not d.waits} for d in found]


def echo(found: "Sequence[Difference]", most: int | None = None) -> None:
    """Print differences that come for all at once, or with new files for Envoy."""
    if not found:
        click.echo("  no difference in meaning")
    _group("", [d for d in found if not d.envoy], most)
    _group("with new files for Envoy:", [d for d in found if d.envoy], most)


def echo_canary(found: "Sequence[Difference]", most: int | None = None) -> None:
    """Print differences of a canary: those of its tenants, and those that wait."""
    _group("for its tenants now:", [d for d in found if not d.waits], most)
    _group("for all, when it is promoted:", [d for d in found if d.waits], most)
    if not found:
        click.echo("  no difference in meaning")


def _group(title: str, found: "Sequence[Difference]", most: int | None) -> None:
    if not found:
        return
    if title:
        click.echo(title)
    for difference in found[:most]:
        click.echo(f"  {difference.text}")
    if most is not None and len(found) > most:
        click.echo(f"  and {len(found) - most} more")
