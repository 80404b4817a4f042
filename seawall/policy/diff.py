"""What differs between two documents, in words for the person who is about to push one of them.

Documents are compared by what they mean, defaults filled in: another order of keys, a comment or a default that is
written out is no difference. No digest of a key is repeated, keys are told by their ids.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from pydantic import BaseModel

from seawall.policy.canary import TENANT_SECTIONS
from seawall.policy.document import Document, Key, keys_of
from seawall.policy.mistake import shown
from seawall.policy.rule_told import Entries, rules_told
from seawall.policy.rules import CHARGED_KEYS, OUR_DOMAIN

ENVOY_SECTIONS = frozenset({"engines", "pools", "retries"})
"""Sections that Envoy's files are made of; of a pool all but `concurrency`."""
_SIZES = frozenset({("prefilter", "headers", "max"), ("prefilter", "body", "max"), ("prefilter", "body", "per_class")})


@dataclass(frozen=True, slots=True)
class Difference:
    """One thing that changes. `section` is the document's key; `envoy`: Envoy has to read new files for it."""

    section: str
    text: str
    envoy: bool = False

    @property
    def waits(self) -> bool:
        """Whether it waits for the promotion of a canary; else it comes for the canary's tenants."""
        return self.section not in TENANT_SECTIONS


def differences(before: Document, after: Document) -> list[Difference]:
    """Find what changes from one document to the other, in the order of the sections."""
    found: list[Difference] = []
    for section in type(after).model_fields:
        one, two = getattr(before, section), getattr(after, section)
        if one == two:
            if section == "classes" and list(one) != list(two):
                found.append(Difference(section, f"classes: order {', '.join(one)} → {', '.join(two)}"))
        elif section == "callers":
            found += [Difference(section, text) for text in _callers(one, two)]
        elif section == "limits":
            found += _limits(before, after)
        else:
            found += [Difference(section, text, envoy) for text, envoy in _section(section, one, two)]
    return found


def _callers(one: Any, two: Any) -> Iterator[str]:
    for field in ("anonymous", "key_headers"):
        yield from (text for text, _ in _fields(field, getattr(one, field), getattr(two, field), ("callers", field)))
    for name in {**one.tenants, **two.tenants}:
        old, new = one.tenants.get(name), two.tenants.get(name)
        if old is None:
            yield f"tenant {name} added (class {new.class_ or 'lowest'}, {_count(len(new.keys), 'key')})"
        elif new is None:
            yield f"tenant {name} removed, with {_count(len(old.keys), 'key')}"
        else:
            for key in keys_of(type(new)):
                field = "class_" if key == "class" else key
                if key != "keys" and getattr(old, field) != getattr(new, field):
                    yield f"tenant {name}: {key} {_value(getattr(old, field))} → {_value(getattr(new, field))}"
    yield from _keys(_keys_by_id(one), _keys_by_id(two), set(one.tenants) & set(two.tenants))


def _keys_by_id(callers: Any) -> dict[str, tuple[str, Key]]:
    return {key.id: (name, key) for name, tenant in callers.tenants.items() for key in tenant.keys}


def _keys(one: Mapping[str, tuple[str, Key]], two: Mapping[str, tuple[str, Key]], staying: set[str]) -> Iterator[str]:
    """Tell of keys; those of a tenant that comes or goes are told with it."""
    for id_ in {**one, **two}:
        if id_ not in one:
            tenant, _ = two[id_]
            if tenant in staying:
                yield f"key {id_} added (tenant {tenant})"
        elif id_ not in two:
            tenant, _ = one[id_]
            if tenant in staying:
                yield f"key {id_} removed (tenant {tenant})"
        else:
            (old_tenant, old), (new_tenant, new) = one[id_], two[id_]
            if old_tenant != new_tenant:
                yield f"key {id_} moved (tenant {old_tenant} → {new_tenant})"
            if old.sha256 != new.sha256:
                yield f"key {id_} replaced by another one (tenant {new_tenant})"
            if old.expires != new.expires:
                yield f"key {id_}: expires {_when(old.expires)} → {_when(new.expires)}"


def _limits(before: Document, after: Document) -> Iterator[Difference]:
    one = {limits.domain: rules_told(limits.descriptors) for limits in before.limits}
    two = {limits.domain: rules_told(limits.descriptors) for limits in after.limits}
    sent = {tuple(key for key, _ in path) for path in one.get(OUR_DOMAIN, {})}
    for domain in {**one, **two}:
        old, new = one.get(domain, {}), two.get(domain, {})
        for path in {**old, **new}:
            was, will = old.get(path), new.get(path)
            if was == will:
                continue
            who = _who(domain, path)
            keys = tuple(key for key, _ in path)
            fresh = domain == OUR_DOMAIN and was is None and keys not in sent and set(keys) <= set(CHARGED_KEYS)
            if was is None:
                assert will is not None
                text = f"{who}: {will.text} added"
            elif will is None:
                text = f"{who}: {was.text} removed"
            else:
                anew = " (counted anew)" if was.counted and will.counted and was.counted != will.counted else ""
                text = f"{who}: requests {was.text} → {will.text}{anew}"
            yield Difference("limits", text, fresh)
        both = [[path for path in rules if path in old and path in new and _wild(path)] for rules in (old, new)]
        if both[0] != both[1]:
            where = "" if domain == OUR_DOMAIN else f"domain {domain}: "
            yield Difference("limits", f"{where}order of rules with '*': {', '.join(map(_spelled, both[1]))}")


def _wild(path: Entries) -> bool:
    return any("*" in key or "*" in value for key, value in path)


def _spelled(path: Entries) -> str:
    return ", ".join(f"{key} {value}" if value else f"each {key}" for key, value in path)


def _who(domain: str, path: Entries) -> str:
    return ("" if domain == OUR_DOMAIN else f"domain {domain}: ") + _spelled(path)


def _section(section: str, one: Any, two: Any) -> Iterator[tuple[str, bool]]:
    """Tell of a section; those of named things call each by what it is."""
    if not isinstance(one, dict):
        for text, path in _fields(section, one, two, (section,)):
            yield text, _for_envoy(path)
        return
    singular = section.removesuffix("es") if section == "classes" else section.removesuffix("s")
    for name in {**one, **two}:
        called = f"{singular} {name}"
        if name not in one:
            yield f"{called} added", section in ENVOY_SECTIONS
        elif name not in two:
            yield f"{called} removed", section in ENVOY_SECTIONS
        elif one[name] != two[name]:
            for text, path in _fields("", one[name], two[name], (section, name)):
                yield f"{called}: {text}", _for_envoy(path)


def _for_envoy(path: tuple[str, ...]) -> bool:
    return path[0] in ENVOY_SECTIONS and not (path[0] == "pools" and path[2:3] == ("concurrency",))


def _fields(called: str, one: Any, two: Any, path: tuple[str, ...]) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Walk two values of the same place; each difference with its path."""
    if one == two:
        return
    if isinstance(one, BaseModel) and isinstance(two, BaseModel) and type(one) is type(two):
        for key, info in keys_of(type(one)).items():
            field = next(name for name, known in type(one).model_fields.items() if known is info)
            below = f"{called}.{key}" if called else key
            old, new = getattr(one, field), getattr(two, field)
            if old != new and isinstance(info.json_schema_extra, dict) and info.json_schema_extra.get("private"):
                yield f"{below} changed", (*path, key)
            else:
                yield from _fields(below, old, new, (*path, key))
    elif isinstance(one, dict) and isinstance(two, dict):
        for key in {**one, **two}:
            if key not in one:
                yield f"{called}.{key} added{_told(two[key], path)}", (*path, key)
            elif key not in two:
                yield f"{called}.{key} removed{_told(one[key], path)}", (*path, key)
            else:
                yield from _fields(f"{called}.{key}", one[key], two[key], (*path, key))
    elif isinstance(one, tuple) and isinstance(two, tuple) and _plain(one) and _plain(two):
        gone, new = [x for x in one if x not in two], [x for x in two if x not in one]
        for value in new:
            yield f"{called}: {shown(str(value))} added", path
        for value in gone:
            yield f"{called}: {shown(str(value))} removed", path
        if not gone and not new:
            yield f"{called}: order {', '.join(map(str, one))} → {', '.join(map(str, two))}", path
    else:
        yield f"{called} {_value(one, path)} → {_value(two, path)}", path


def _plain(values: tuple[Any, ...]) -> bool:
    return all(isinstance(value, str) for value in values)


def _told(value: Any, path: tuple[str, ...]) -> str:
    return "" if isinstance(value, BaseModel | dict) else f" ({_value(value, path)})"


def _value(value: Any, path: tuple[str, ...] = ()) -> str:
    if value is None:
        return "none"
    if isinstance(value, tuple):
        return ", ".join(map(str, value)) or "none"
    if path[:3] in _SIZES and isinstance(value, int):
        return _size(value)
    return f"{value:g}" if isinstance(value, float) else str(value)[:200]


def _size(count: int) -> str:
    for unit, factor in (("MiB", 2**20), ("KiB", 2**10)):
        if count >= factor and count % factor == 0:
            return f"{count // factor}{unit}"
    return f"{count}"


def _when(expires: float | None) -> str:
    return "never" if expires is None else datetime.fromtimestamp(expires, UTC).strftime("%Y-%m-%d %H:%MZ")


def _count(number: int, what: str) -> str:
    return f"{number} {what}" + ("" if number == 1 else "s")
