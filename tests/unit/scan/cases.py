"""Texts in tests/cases/scan."""

from pathlib import Path

import yaml

CASES = Path(__file__).parents[2] / "cases" / "scan"


def clean_texts() -> list[str]:
    """Texts that no built-in set may find anything in."""
    lines = (CASES / "clean.txt").read_text("utf-8").splitlines()
    return [line.replace("\\n", "\n") for line in lines if not line.startswith("# ")]


def positives() -> list[tuple[str, str, str | None]]:
    """Set, text, and what the set finds in it."""
    found: dict[str, list[tuple[str, str | None]]] = yaml.safe_load((CASES / "positives.yaml").read_text("utf-8"))
    return [
        (name, text.replace("⟂", ""), match.replace("⟂", "") if match is not None else None)
        for name, cases in found.items()
        for text, match in cases
    ]
