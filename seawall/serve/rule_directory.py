"""Rule files of envoyproxy/ratelimit in a folder: found as its loader finds them, read again when anything changed."""

from dataclasses import dataclass
from pathlib import Path

Signature = tuple[tuple[str, int, int, int], ...]
"""Name, inode, size and time of change (ns) of each file: differs after a write, a rename and a swapped symlink alike."""


@dataclass(frozen=True, slots=True)
class RuleDirectory:
    """Every file below `path` whatever its ending, sub-folders too; `ignore_dot_files` leaves out dot files and folders.

    Kubernetes mounts a ConfigMap as links into a hidden `..data` folder, which is why that option exists.
    """

    path: Path
    ignore_dot_files: bool = False

    def files(self) -> list[Path]:
        """Files in the order of their names; a folder that is missing has none."""
        found: list[Path] = []
        pending: list[tuple[Path, frozenset[tuple[int, int]]]] = [(self.path, frozenset())]
        while pending:
            folder, above = pending.pop()
            try:
                stat = folder.stat()
                entries = sorted(folder.iterdir())
            except (FileNotFoundError, NotADirectoryError):
                continue
            here = (stat.st_dev, stat.st_ino)
            if here in above:
                # A link to a folder above: its files are found already, and it has no end.
                continue
            for entry in entries:
                if self.ignore_dot_files and entry.name.startswith("."):
                    continue
                if entry.is_dir():
                    pending.append((entry, above | {here}))
                elif entry.is_file():
                    found.append(entry)
        return sorted(found)

    def signature(self) -> Signature:
        """Tell two states of the folder apart without reading its files."""
        states = []
        for path in self.files():
            try:
                stat = path.stat()
            except FileNotFoundError:
                continue
            states.append((str(path), stat.st_ino, stat.st_size, stat.st_mtime_ns))
        return tuple(states)

    def read(self) -> list[tuple[str, bytes]]:
        """(name below the folder, bytes) of every file."""
        return [(str(path.relative_to(self.path)), path.read_bytes()) for path in self.files()]
