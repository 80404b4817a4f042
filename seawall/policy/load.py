"""Text to document: either a valid one, or all its mistakes at once."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

from seawall import __version__
from seawall.policy.checks import Checks
from seawall.policy.document import Document, needs_of, release_key
from seawall.policy.fields import RELEASE_PATTERN
from seawall.policy.mistake import MISTAKES_SHOWN, Mistake, Path, PolicyError
from seawall.policy.reader import read_tree
from seawall.policy.rules import list_mistakes
from seawall.policy.scanning import CURRENT, scan_mistakes
from seawall.policy.shape import validate
from seawall.policy.tree import Leaf, Node, find, place
from seawall.policy.upstreams import upstream_mistakes

MAX_BODY = 8 * 1024 * 1024
"""Default of SEAWALL_MAX_BODY, bytes."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """A valid document and where everything in it stands."""

    document: Document
    root: Node | None
    file: str

    def place(self, path: Path) -> tuple[int, int]:
        """Line and column of a value, from 1."""
        return place(self.root, path)

    @property
    def needs(self) -> str:
        """Lowest release that understands the document."""
        stated, used = self.document.needs or "0", needs_of(self.document)
        return max(stated, used, key=release_key)


def load(
    text: str | bytes, *, file: str = "policy.yaml", max_body: int = MAX_BODY, model: type[Document] = CURRENT
) -> Loaded:
    """Read a policy document, one that the gate takes or one of another `model`.

    Raises PolicyError with every mistake in it: of YAML, of shape, of names that refer to nothing, and of bounds
    (`max_body`, bytes, is what Envoy buffers). A document that says it needs a later release has that one mistake: this
    release can't judge the rest.
    """
    root, mistakes = read_tree(text, file)
    if late := too_late(root, file):
        raise PolicyError([late])
    document, shape = validate(model, root, file)
    mistakes += shape
    # One more than is shown: a document of a million bad names must not cost a million look-ups of the nearest name.
    mistakes += islice(_checks(Checks(root, file), max_body), MISTAKES_SHOWN + 1)
    if mistakes or document is None:
        raise PolicyError(mistakes)
    return Loaded(document, root, file)


def _checks(checks: Checks, max_body: int) -> Iterator[Mistake]:
    yield from checks.all()
    yield from list_mistakes(checks)
    yield from upstream_mistakes(checks)
    yield from scan_mistakes(checks)
    yield from checks.statics(max_body)


def check_statics(loaded: Loaded, max_body: int) -> tuple[Mistake, ...]:
    """Hold a valid document against other settings than it was loaded with."""
    return tuple(Checks(loaded.root, loaded.file).statics(max_body))


def too_late(root: Node | None, file: str) -> Mistake | None:
    """Say that the document needs a later release than this one."""
    node = find(root, ("needs",))
    if not isinstance(node, Leaf) or node.text is None or not RELEASE_PATTERN.fullmatch(node.text):
        return None
    if not newer_than_this(node.text):
        return None
    return Mistake(file, node.line, node.column, "needs", None, f"needs release {node.text}, this is {__version__}")


def newer_than_this(release: str) -> bool:
    """Whether a release is later than the one running."""
    return release_key(release) > release_key(__version__)
