"""docs/policy.md against the models."""

import re
from pathlib import Path

from seawall.policy import document, scanning
from seawall.policy.document import Document, Section, keys_of

DOCS = (Path(__file__).parents[3] / "docs" / "policy.md").read_text()


def test_every_key_is_documented() -> None:
    """Each key of each section stands in the reference as code."""
    sections = [
        c for c in {**vars(document), **vars(scanning)}.values() if isinstance(c, type) and issubclass(c, Section)
    ]
    assert Document in sections
    named = set(re.findall(r"`([^`]+)`", DOCS))
    words = {word for name in named for word in re.split(r"[^\w]+", name)}
    missing = {f"{c.__name__}.{key}" for c in sections for key in keys_of(c) if key not in words}
    assert not missing
