"""Limits in words, for people who compare two policies: all that a rule says, in one line."""

import zlib
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from seawall.limits.window import Unit, unit_of
from seawall.policy.document import Descriptor, LimitWindow, RateLimit
from seawall.policy.mistake import SHOWN, shown

Entries = tuple[tuple[str, str], ...]


class Told(NamedTuple):
    """`text` says everything, so equal rules have equal texts; `counted` is what a counter goes on by, "" for none."""

    text: str
    counted: str


def rules_told(descriptors: Iterable[Descriptor], above: Entries = ()) -> dict[Entries, Told]:
    """Flatten the rules that decide anything: path of entries → what is said, in the order of the document."""
    found: dict[Entries, Told] = {}
    for rule in descriptors:
        path = (*above, (rule.key, rule.value))
        if rule.rate_limit is not None:
            found[path] = _told(rule, rule.rate_limit)
        elif not rule.descriptors:
            found[path] = Told(", ".join(["no limit", *_flags(rule)]), "")
        found |= rules_told(rule.descriptors, path)
    return found


def _told(rule: Descriptor, limit: RateLimit) -> Told:
    if limit.unlimited:
        return Told(", ".join(["unlimited", *_names(limit), *_flags(rule)]), "")
    parts = [_window(limit), *(f"also {_window(window)}" for window in limit.also)]
    if limit.at_limit != "open":
        parts.append(f"at limit {limit.at_limit}")
    if limit.charge_refused is not None:
        parts.append("refused hits charged" if limit.charge_refused else "refused hits not charged")
    return Told(", ".join([*parts, *_names(limit), *_flags(rule)]), f"{limit.algorithm}/{_length(limit)}")


def _window(window: LimitWindow) -> str:
    words = [f"{window.requests_per_unit}/{_length(window)}"]
    words += [str(window.algorithm)] if window.algorithm != "fixed" else []
    words += [f"burst {window.burst}"] if window.burst is not None else []
    return " ".join([*words, *(["hidden"] if window.hidden else [])])


def _length(window: LimitWindow) -> str:
    seconds = window.window or Unit[window.unit.upper()].seconds
    unit = unit_of(seconds)
    return f"{seconds}s" if unit is None else unit.name.lower()


def _names(limit: RateLimit) -> list[str]:
    named = [f"name {limit.name}"] if limit.name else []
    return [*named, *(f"replaces {replaced.name}" for replaced in limit.replaces)]


def _flags(rule: Descriptor) -> list[str]:
    names = ("shadow_mode", "quota_mode", "detailed_metric", "value_to_metric", "share_threshold")
    flags = [name for name in names if getattr(rule, name)]
    return [*flags, *([f"metadata {_metadata(rule.metadata)}"] if rule.metadata else [])]


def _metadata(metadata: Mapping[str, Any]) -> str:
    """What fits in a line; two that are cut alike still differ by their checksum."""
    text = str(metadata)
    return text if len(text) <= SHOWN else f"{shown(text)} ({zlib.crc32(text.encode()):08x})"
