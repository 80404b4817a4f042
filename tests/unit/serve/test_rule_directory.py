"""Rule files in a folder."""

import os
from pathlib import Path

import pytest

from seawall.serve.rule_directory import RuleDirectory


def names(directory: RuleDirectory) -> list[str]:
    """Names of the files that are read."""
    return [name for name, _ in directory.read()]


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A folder with files of all kinds."""
    for name in ("b.yaml", "a.txt", "sub/deep/c", "sub/.hidden", ".dot", ".folder/d.yaml", "z.yaml"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    (tmp_path / "empty").mkdir()
    (tmp_path / "broken").symlink_to("nowhere")
    os.mkfifo(tmp_path / "pipe")
    return tmp_path


def test_all_files(tree: Path) -> None:
    """Every file counts, whatever its ending, in sub-folders too, by name; pipes and broken links don't."""
    assert RuleDirectory(tree).read() == [
        (name, name.encode())
        for name in (".dot", ".folder/d.yaml", "a.txt", "b.yaml", "sub/.hidden", "sub/deep/c", "z.yaml")
    ]


def test_without_dot_files(tree: Path) -> None:
    """Dot files and what lies in dot folders can be left out."""
    assert names(RuleDirectory(tree, ignore_dot_files=True)) == ["a.txt", "b.yaml", "sub/deep/c", "z.yaml"]


def test_a_dot_folder_may_be_the_root(tree: Path) -> None:
    """The folder itself is read whatever its name."""
    assert names(RuleDirectory(tree / ".folder", ignore_dot_files=True)) == ["d.yaml"]


def test_missing(tmp_path: Path) -> None:
    """A folder that is missing, or is a file, has no files."""
    assert RuleDirectory(tmp_path / "nowhere").files() == []
    assert RuleDirectory(tmp_path / "nowhere").signature() == ()
    (tmp_path / "file").touch()
    assert RuleDirectory(tmp_path / "file").files() == []


def test_links_in_a_circle(tmp_path: Path) -> None:
    """Links back to a folder above have no end, and are not followed."""
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "a.yaml").touch()
    for name in ("one", "two", "three", "sub/up", "sub/again"):
        (tmp_path / name).symlink_to(tmp_path)
    (tmp_path / "self").symlink_to("self")
    assert names(RuleDirectory(tmp_path)) == ["sub/a.yaml"]


def test_links_to_elsewhere(tmp_path: Path) -> None:
    """Links to files and to other folders are followed."""
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "a.yaml").write_text("a")
    (tmp_path / "root").mkdir()
    (tmp_path / "root" / "folder").symlink_to(tmp_path / "other")
    (tmp_path / "root" / "file.yaml").symlink_to(tmp_path / "other" / "a.yaml")
    assert RuleDirectory(tmp_path / "root").read() == [("file.yaml", b"a"), ("folder/a.yaml", b"a")]


def test_signature(tree: Path) -> None:
    """Another signature tells of a file written, renamed, added or removed; nothing done leaves it as it was."""
    directory = RuleDirectory(tree)
    seen = [directory.signature()]
    assert directory.signature() == seen[0]
    (tree / "b.yaml").write_text("longer than it was")
    seen.append(directory.signature())
    (tree / "b.yaml").rename(tree / "c.yaml")
    seen.append(directory.signature())
    (tree / "sub" / "new").touch()
    seen.append(directory.signature())
    (tree / "sub" / "new").unlink()
    seen.append(directory.signature())
    replacement = tree.parent / "replacement"
    old = (tree / "c.yaml").stat()
    replacement.write_text("LONGER THAN IT WAS")
    os.utime(replacement, ns=(old.st_atime_ns, old.st_mtime_ns))
    replacement.rename(tree / "c.yaml")
    seen.append(directory.signature())
    assert len({*seen}) == len(seen) - 1
    assert seen[2] == seen[4]


def test_dot_files_do_not_count(tree: Path) -> None:
    """What is left out changes no signature."""
    directory = RuleDirectory(tree, ignore_dot_files=True)
    before = directory.signature()
    (tree / ".dot").write_text("changed")
    (tree / ".new").touch()
    assert directory.signature() == before


def config_map(mount: Path, version: str, text: str) -> None:
    """Do what a kubelet does with a changed ConfigMap: a new folder, and `..data` swapped to it in one step."""
    (mount / f"..{version}").mkdir()
    (mount / f"..{version}" / "rules.yaml").write_text(text)
    (mount / "..new").symlink_to(f"..{version}")
    (mount / "..new").rename(mount / "..data")


def test_config_map(tmp_path: Path) -> None:
    """The swap of a ConfigMap's `..data` is another signature and other text, each file once."""
    config_map(tmp_path, "one", "1")
    (tmp_path / "rules.yaml").symlink_to("..data/rules.yaml")
    directory = RuleDirectory(tmp_path, ignore_dot_files=True)
    before = directory.signature()
    assert directory.read() == [("rules.yaml", b"1")]
    config_map(tmp_path, "two", "2")
    assert directory.read() == [("rules.yaml", b"2")]
    assert directory.signature() != before
    # With dot folders the same file is found again in each, as the Go service does.
    assert len(RuleDirectory(tmp_path).read()) == 4


def test_swap_of_the_root(tmp_path: Path) -> None:
    """A root that is a link swapped to another folder is another signature, even with equal files."""
    for version in ("one", "two"):
        (tmp_path / version).mkdir()
        (tmp_path / version / "rules.yaml").write_text("same")
        os.utime(tmp_path / version / "rules.yaml", ns=(1, 1))
    current = tmp_path / "current"
    current.symlink_to("one")
    directory = RuleDirectory(current)
    before = directory.signature()
    (tmp_path / "new").symlink_to("two")
    (tmp_path / "new").rename(current)
    assert directory.signature() != before
    assert directory.read() == [("rules.yaml", b"same")]
