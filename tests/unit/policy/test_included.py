"""Rule files that a policy names: put into the text, so that a policy is one text."""

from pathlib import Path

import pytest

from seawall.limits.descriptor import match
from seawall.policy.compile import compile_policy
from seawall.policy.included import with_rule_files
from seawall.policy.load import load
from seawall.policy.mistake import PolicyError
from seawall.policy.rule_files import compile_rule_files
from seawall.serve.policy_text import read_policy
from tests.ratelimit.cases import fixtures

RULE = "domain: {}\ndescriptors: [{{key: {}, rate_limit: {{unit: minute, requests_per_unit: 1}}}}]\n"


def put(text: str, files: dict[str, str]) -> str:
    def source(name: str) -> list[tuple[str, str]]:
        if name.endswith("/"):
            return [(file, files[file]) for file in files if file.startswith(name)]
        if name not in files:
            raise FileNotFoundError(2, "No such file or directory")
        return [(name, files[name])]

    return with_rule_files(text, "p.yaml", source)


def test_the_files_are_the_list() -> None:
    """Every fixture of the rate limit cases means the same in a policy as in a folder."""
    files = {f"limits/{name}.yaml": text for name, text in fixtures().items()}
    text = put("limits: {files: [limits/]}\n", files)
    assert compile_policy(text).limits == compile_rule_files(files.items()).limits
    assert put(text, files) == text


def test_source_text_and_our_keys_survive() -> None:
    """Values that look like numbers, metadata of any kind, windows and keys that are passed over."""
    rules = (
        "name: passed over\ndomain: yes\ndescriptors:\n"
        "- {key: k, value: 007, metadata: {window: 5, y: on, f: 1.5, i: .inf, n: ~, l: [1, 'x: \"y']}, "
        "rate_limit: {window: 30s, requests_per_unit: 0x10, algorithm: gcra, burst: 3, at_limit: exhausted, "
        "also: [{window: 1h, requests_per_unit: 9, hidden: y}], replaces: [{name: other}]}}\n"
    )
    text = put("limits:\n  files: [a]\n", {"a": rules})
    assert compile_policy(text).limits == compile_rule_files([("a", rules)]).limits
    assert match(compile_policy(text).limits["yes"], [("k", "007")]) is not None


@pytest.mark.parametrize("domains", [1, 5])
def test_later_lines_keep_their_places(domains: int) -> None:
    """A mistake below `limits` is told where the author has it, however many domains the files hold."""
    files = {f"{n}": RULE.format(f"d{n}", "k") for n in range(domains)}
    text = f"classes: {{a: }}\nlimits:\n  # why\n  files: [{', '.join(files)}]\noutput: {{max_token: 1}}\n"
    with pytest.raises(PolicyError) as refused:
        load(put(text, files), file="p.yaml")
    [mistake] = refused.value.mistakes
    assert (mistake.line, mistake.path) == (5, "output.max_token")


def test_merged() -> None:
    """One domain in several files needs leave, as there."""
    files = {"1": RULE.format("d", "a"), "2": RULE.format("d", "b")}
    text = put("limits: {files: ['1', '2'], merge_domains: yes}", files)
    assert [node.key for node in compile_policy(text).limits["d"].below] == ["a", "b"]
    with pytest.raises(PolicyError, match="'d' is also in 1"):
        put("limits: {files: ['1', '2']}", files)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("limits: {files: [x]}", r"p.yaml:1:18: limits.files\[0\]: 'x' can't be read: No such file"),
        ("limits: {files: a}", "p.yaml:1:17: limits.files: is not a list"),
        ("limits: {files: [a], merge: y}", "p.yaml:1:22: limits.merge: unknown key"),
        ("limits: {files: [[a]]}", r"limits.files\[0\]: is no name of a file"),
        ("{limits: {files: [a]}, output: }", "is one {…} mapping"),
        ("limits: {files: [b]}", "b:1:9: domain: '' is empty"),
    ],
)
def test_refused(text: str, message: str) -> None:
    """What can't be put in has its place: in the policy, or in the file."""
    with pytest.raises(PolicyError, match=message):
        put(text, {"a": RULE.format("d", "k"), "b": "domain: ''"})


@pytest.mark.parametrize("text", ["", "limits: []", "# files", "limits: [files: x", "limits: {}", "files: x"])
def test_nothing_named(text: str) -> None:
    """A text that names no files stays as it is, also one that is no policy."""
    assert put(text, {}) == text


def test_a_text_that_comes_from_no_file() -> None:
    """The store holds no names of files: such a document says what to do."""
    with pytest.raises(PolicyError, match="names files, which only a document that is read from a file can"):
        load("limits: {files: [x]}")


def test_from_disk(tmp_path: Path) -> None:
    """Names are relative to the policy; of a folder every file counts, dot files and folders not."""
    (tmp_path / "rules" / "sub").mkdir(parents=True)
    (tmp_path / "rules" / "a.yaml").write_text(RULE.format("a", "k"))
    (tmp_path / "rules" / "sub" / "b").write_text(RULE.format("b", "k"))
    (tmp_path / "rules" / ".c.yaml").write_text("nonsense")
    (tmp_path / "policy.yaml").write_text("limits: {files: [rules]}\n")
    assert set(compile_policy(read_policy(tmp_path / "policy.yaml")).limits) == {"a", "b"}
