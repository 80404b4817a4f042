"""Rules of envoyproxy/ratelimit, from files or from a control plane: one domain each, all together the configuration."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from seawall.limits.descriptor import Node
from seawall.policy.checks import Checks
from seawall.policy.compile import domain_tree
from seawall.policy.document import Descriptor, LimitDomain
from seawall.policy.mistake import MISTAKES_SHOWN, Mistake, PolicyError, shown
from seawall.policy.reader import read_foreign_tree
from seawall.policy.rules import Known, domain_mistakes, misplaced
from seawall.policy.shape import validate
from seawall.policy.tree import Node as TreeNode
from seawall.policy.tree import of_data, place


@dataclass(frozen=True, slots=True)
class RuleSet:
    """One tree a domain, the value of `Policy.limits`; and what was passed over, for the author to look at."""

    limits: Mapping[str, Node]
    warnings: tuple[Mistake, ...] = ()


def compile_rule_files(
    files: Iterable[tuple[str, str | bytes]], *, merge: bool = False, strict: bool = False
) -> RuleSet:
    """Compile (file name, text), read as its own loader reads them.

    `merge` (MERGE_DOMAIN_CONFIG): a domain may stand in several files; its rules are taken in the order of the file
    names, so overlapping wildcards win in the same order after every reload. `strict` refuses the keys that are ours. One
    bad file refuses the whole set: raises PolicyError with the mistakes of all files.
    """
    return _set_of(_collected(_read(files), merge=merge, strict=strict))


def compile_resources(resources: Iterable[tuple[str, Mapping[str, Any]]], *, merge: bool = False) -> RuleSet:
    """Compile (name, data) of resources that a control plane sent: the same keys as in a file, by the same rules.

    A mistake is of `resource 'NAME'` and has a path, but no line. Raises PolicyError as `compile_rule_files` does.
    """
    parsed = [_Parsed(f"resource {shown(name)}", of_data(data)) for name, data in resources]
    return _set_of(_collected(parsed, merge=merge, strict=False))


def sections_of(files: Iterable[tuple[str, str | bytes]], *, merge: bool) -> list[LimitDomain]:
    """The same files as sections of a policy, one a domain. Raises PolicyError."""
    rules, _ = _collected(_read(files), merge=merge, strict=False)
    return [LimitDomain.model_construct(domain=domain, descriptors=tuple(found)) for domain, found in rules.items()]


@dataclass(frozen=True, slots=True)
class _Parsed:
    """One file or resource, read; `broken` if not even that was possible."""

    file: str
    root: TreeNode | None
    mistakes: Sequence[Mistake] = ()
    warnings: Sequence[Mistake] = ()
    broken: bool = False


def _read(files: Iterable[tuple[str, str | bytes]]) -> Iterator[_Parsed]:
    for file, text in files:
        try:
            yield _Parsed(file, *read_foreign_tree(text, file))
        except PolicyError as e:
            yield _Parsed(file, None, e.mistakes, broken=True)


def _set_of(collected: tuple[dict[str, list[Descriptor]], list[Mistake]]) -> RuleSet:
    rules, warnings = collected
    trees = {domain: domain_tree(descriptors) for domain, descriptors in rules.items()}
    return RuleSet(MappingProxyType(trees), tuple(warnings))


def _collected(
    parsed: Iterable[_Parsed], *, merge: bool, strict: bool
) -> tuple[dict[str, list[Descriptor]], list[Mistake]]:
    """Rules by domain, and warnings. Raises PolicyError."""
    known: dict[str, Known] = {}
    first: dict[str, str] = {}
    rules: dict[str, list[Descriptor]] = {}
    mistakes: list[Mistake] = []
    warnings: list[Mistake] = []
    for each in sorted(parsed, key=lambda p: p.file):
        file, root = each.file, each.root
        mistakes += each.mistakes
        if each.broken:
            continue
        checks = Checks(root, file)
        section, shape = validate(LimitDomain, root, file, lenient=True)
        mistakes += shape
        domain = section.domain if section is not None else ""
        about = Known()
        if domain in first and not merge:
            line, column = place(root, ("domain",))
            message = f"domain '{domain}' is also in {first[domain]}"
            mistakes.append(
                Mistake(file, line, column, "domain", None, message, "one file (MERGE_DOMAIN_CONFIG: several)")
            )
        elif domain:
            about = known.setdefault(domain, about)
        mistakes += domain_mistakes(checks, root, (), about, strict=strict)
        warnings += [*each.warnings, *misplaced(checks, root)][:MISTAKES_SHOWN]
        if section is not None:
            first.setdefault(domain, file)
            rules.setdefault(domain, []).extend(section.descriptors)
    for about in known.values():
        mistakes += about.names.mistakes()
    if mistakes:
        raise PolicyError(mistakes)
    return rules, warnings[:MISTAKES_SHOWN]
