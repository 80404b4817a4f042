"""A policy as it is read from a file: the rule files that it names are put into it."""

from pathlib import Path

from seawall.policy.included import with_rule_files
from seawall.serve.rule_directory import RuleDirectory


def read_policy(path: str | Path) -> str:
    """Text of the policy in a file. Raises OSError, UnicodeDecodeError, and PolicyError for its rule files."""
    return complete(Path(path).read_text("utf-8"), str(path), Path(path).parent)


def complete(text: str, file: str, folder: Path) -> str:
    """Put the rule files in that a policy names, from `folder` where the names are relative. Raises PolicyError."""

    def source(name: str) -> list[tuple[str, bytes]]:
        path = folder / name
        if path.is_dir():
            return [(str(Path(name) / below), text) for below, text in RuleDirectory(path, True).read()]
        return [(name, path.read_bytes())]

    return with_rule_files(text, file, source)
