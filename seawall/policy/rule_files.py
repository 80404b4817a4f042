"""Rule files of envoyproxy/ratelimit: one domain a file, all files together are the configuration."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from seawall.limits.descriptor import Node
from seawall.policy.checks import Checks
from seawall.policy.compile import domain_tree
from seawall.policy.document import Descriptor, LimitDomain
from seawall.policy.mistake import MISTAKES_SHOWN, Mistake, PolicyError
from seawall.policy.reader import read_foreign_tree
from seawall.policy.rules import Known, domain_mistakes, misplaced
from seawall.policy.shape import validate
from seawall.policy.tree import place


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
    rules, warnings = _read(files, merge=merge, strict=strict)
    trees = {domain: domain_tree(descriptors) for domain, descriptors in rules.items()}
    return RuleSet(MappingProxyType(trees), tuple(warnings))


def sections_of(files: Iterable[tuple[str, str | bytes]], *, merge: bool) -> list[LimitDomain]:
    """The same files as sections of a policy, one a domain. Raises PolicyError."""
    rules, _ = _read(files, merge=merge, strict=False)
    return [LimitDomain.model_construct(domain=domain, descriptors=tuple(found)) for domain, found in rules.items()]


def _read(
    files: Iterable[tuple[str, str | bytes]], *, merge: bool, strict: bool
) -> tuple[dict[str, list[Descriptor]], list[Mistake]]:
    """Rules by domain, and warnings. Raises PolicyError."""
    known: dict[str, Known] = {}
    first: dict[str, str] = {}
    rules: dict[str, list[Descriptor]] = {}
    mistakes: list[Mistake] = []
    warnings: list[Mistake] = []
    for file, text in sorted(files, key=lambda f: f[0]):
        try:
            root, found, passed = read_foreign_tree(text, file)
        except PolicyError as e:
            mistakes += e.mistakes
            continue
        checks = Checks(root, file)
        section, shape = validate(LimitDomain, root, file, lenient=True)
        mistakes += [*found, *shape]
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
        warnings += [*passed, *misplaced(checks, root)][:MISTAKES_SHOWN]
        if section is not None:
            first.setdefault(domain, file)
            rules.setdefault(domain, []).extend(section.descriptors)
    for about in known.values():
        mistakes += about.names.mistakes()
    if mistakes:
        raise PolicyError(mistakes)
    return rules, warnings[:MISTAKES_SHOWN]
