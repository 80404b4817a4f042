import pytest

from seawall.store import versions
from seawall.store.contract import Conflict, StoreUnavailable, UnknownVersion
from seawall.store.versions import View


def view(sizes: dict[int, int], current: int | None = None, previous: int | None = None, last: int = 0) -> View:
    return View(current=current, previous=previous, last=last, digest="d", sizes=sizes)


def test_numbers_go_on_after_the_highest_ever() -> None:
    assert versions.next_version(view({})) == 1
    assert versions.next_version(view({1: 1, 2: 1}, current=1, last=2)) == 3
    assert versions.next_version(view({1: 1}, current=1, last=9)) == 10
    assert versions.next_version(view({1: 1, 12: 1}, current=1)) == 13


def test_200_versions_are_kept() -> None:
    assert versions.to_drop(view(dict.fromkeys(range(1, 200), 10), current=199), 10) == []
    assert versions.to_drop(view(dict.fromkeys(range(1, 201), 10), current=200), 10) == [1]
    assert versions.to_drop(view(dict.fromkeys(range(1, 203), 10), current=2), 10) == [1, 3, 4]


def test_64_mib_are_kept() -> None:
    mib = 2**20
    assert versions.to_drop(view({1: 32 * mib, 2: 16 * mib}, current=2), 16 * mib) == []
    assert versions.to_drop(view({1: 32 * mib, 2: 16 * mib}, current=2), 16 * mib + 1) == [1]
    assert versions.to_drop(view({1: 60 * mib, 2: 3 * mib, 3: 1}, current=1), 5 * mib) == [2, 3]


def test_conflicts_name_the_current_version() -> None:
    with pytest.raises(Conflict, match="current is version 3, not version 2"):
        versions.check_push(view({3: 1}, current=3), "other", 2)
    with pytest.raises(Conflict, match="current is none yet, not version 2"):
        versions.check_push(view({}), "other", 2)
    with pytest.raises(Conflict, match="equals version 3"):
        versions.check_push(view({3: 1}, current=3), "d", 3)
    versions.check_push(view({3: 1}, current=3), "other", 3)


def test_a_way_back_must_be_kept() -> None:
    kept = view({2: 1, 3: 1}, current=3, previous=2)
    assert versions.rollback_target(kept, None) == 2
    assert versions.rollback_target(kept, 3) == 3
    with pytest.raises(UnknownVersion, match="version 1 is not kept"):
        versions.rollback_target(kept, 1)
    with pytest.raises(UnknownVersion):
        versions.rollback_target(view({3: 1}, current=3), None)


@pytest.mark.parametrize("damage", [b"", b"no zlib", versions.pack("x" * 1000)[:-5]])
def test_a_damaged_document_is_no_document(damage: bytes) -> None:
    with pytest.raises(StoreUnavailable, match="version 4 is damaged"):
        versions.unpack(4, damage)


def test_any_text_comes_back() -> None:
    for text in ("", "限流", "\udcff\x00\r\n", "x" * 5_000_000):
        assert versions.unpack(1, versions.pack(text)) == text
