"""Rule files of envoyproxy/ratelimit: one domain a file, all files together are the configuration."""

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from seawall.limits.descriptor import Node
from seawall.policy.checks import Checks
from seawall.policy.compile import domain_tree
from seawall.policy.document import LimitDomain
from seawall.policy.mistake import Mistake, PolicyError
from seawall.policy.reader import read_tree
from seawall.policy.rules import domain_mistakes
from seawall.policy.shape import validate
from seawall.policy.tree import place


def compile_rule_files(files: Iterable[tuple[str, str | bytes]]) -> Mapping[str, Node]:
    """Compile (file name, text) to one tree a domain, the value of `Policy.limits`.

    One bad file refuses the whole set: raises PolicyError with the mistakes of all files.
    """
    trees: dict[str, Node] = {}
    first: dict[str, str] = {}
    mistakes: list[Mistake] = []
    for file, text in files:
        try:
            root, found = read_tree(text, file)
        except PolicyError as e:
            mistakes += e.mistakes
            continue
        section, shape = validate(LimitDomain, root, file)
        found = [*found, *shape, *domain_mistakes(Checks(root, file), root)]
        if section is not None and section.domain in trees:
            line, column = place(root, ("domain",))
            message = f"domain '{section.domain}' is also in {first[section.domain]}"
            found.append(Mistake(file, line, column, "domain", None, message))
        mistakes += found
        if section is not None and not found:
            trees[section.domain], first[section.domain] = domain_tree(section), file
    if mistakes:
        raise PolicyError(mistakes)
    return MappingProxyType(trees)
