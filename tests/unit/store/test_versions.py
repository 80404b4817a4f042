from dataclasses import replace

import pytest

from seawall.policy.canary import Canary
from seawall.store import versions
from seawall.store.contract import CanaryShare, Conflict, StoreUnavailable, UnknownVersion
from seawall.store.versions import Pushed, Signed, View


def view(sizes: dict[int, int], current: int | None = None, previous: int | None = None, last: int = 0) -> View:
    return View(current=current, previous=previous, last=last, digest="d", sizes=sizes)


def test_numbers_go_on_after_the_highest_ever() -> None:
    assert versions.next_version(view({})) == 1
    assert versions.next_version(view({1: 1, 2: 1}, current=1, last=2)) == 3
    assert versions.next_version(view({1: 1}, current=1, last=9)) == 10
    assert versions.next_version(view({1: 1, 12: 1}, current=1)) == 13


def test_200_versions_are_kept() -> None:
    assert versions.to_drop(view(dict.fromkeys(range(1, 200), 10), current=199), 10, {199}) == []
    assert versions.to_drop(view(dict.fromkeys(range(1, 201), 10), current=200), 10, {200}) == [1]
    assert versions.to_drop(view(dict.fromkeys(range(1, 203), 10), current=2), 10, {2}) == [1, 3, 4]


def test_64_mib_are_kept() -> None:
    mib = 2**20
    assert versions.to_drop(view({1: 32 * mib, 2: 16 * mib}, current=2), 16 * mib, {2}) == []
    assert versions.to_drop(view({1: 32 * mib, 2: 16 * mib}, current=2), 16 * mib + 1, {2}) == [1]
    assert versions.to_drop(view({1: 60 * mib, 2: 3 * mib, 3: 1}, current=1), 5 * mib, {1}) == [2, 3]


SIGNED = Signed("ann", "because", 1000.0)


def document(text: str, digest: str) -> Pushed:
    return Pushed(text, digest, "0.1")


def pushed(seen: View, digest: str, if_current: int | None = None, keep_canary: bool = False) -> versions.Change:
    return versions.push(seen, document("x", digest), SIGNED, if_current=if_current, keep_canary=keep_canary)


def canary(version: int = 4, percent: float = 10, base: int = 3, tenants: tuple[str, ...] = ()) -> Canary:
    return Canary(version, "c", percent, tenants, salt=version, base=base, by="ann", reason="", since=1.0)


def with_canary(seen: View, running: Canary) -> View:
    return replace(seen, canary=running)


def test_conflicts_name_the_current_version() -> None:
    with pytest.raises(Conflict, match="current is version 3, not version 2"):
        pushed(view({3: 1}, current=3), "other", 2)
    with pytest.raises(Conflict, match="current is none yet, not version 2"):
        pushed(view({}), "other", 2)
    with pytest.raises(Conflict, match="equals version 3"):
        pushed(view({3: 1}, current=3), "d", 3)
    change = pushed(view({3: 1}, current=3, previous=2), "other", 3)
    assert (change.version, change.current, change.previous, change.last) == (4, 4, 3, 4)


def test_a_push_waits_for_the_end_of_a_canary() -> None:
    seen = with_canary(view({3: 1, 4: 1}, current=3, last=4), canary())
    with pytest.raises(Conflict, match="a canary runs, version 4 for 10 % of tenants"):
        pushed(seen, "other")
    change = pushed(seen, "other", keep_canary=True)
    assert (change.current, change.canary) == (5, seen.canary)


def test_a_canary_keeps_current_and_previous() -> None:
    seen = view({2: 1, 3: 1}, current=3, previous=2, last=3)
    share = CanaryShare(10, ("acme",))
    change = versions.start_canary(seen, document("x", "c"), share, SIGNED, if_current=3)
    assert (change.current, change.previous, change.last) == (3, 2, 4)
    assert change.canary == Canary(4, "c", 10, ("acme",), 4, 3, "ann", "because", 1000.0)
    assert change.detail == "10 % of tenants and acme"


def test_a_corrected_canary_keeps_its_tenants() -> None:
    seen = with_canary(view({3: 1, 4: 1}, current=3, last=4), canary())
    again = versions.start_canary(seen, document("y", "c2"), CanaryShare(10), SIGNED, if_current=None).canary
    assert again is not None
    assert (again.version, again.salt) == (5, 4)
    with pytest.raises(Conflict, match="which is the canary already"):
        versions.start_canary(seen, document("y", "c"), CanaryShare(10), SIGNED, if_current=None)


def test_a_canary_needs_something_to_stand_beside() -> None:
    with pytest.raises(Conflict, match="no current version"):
        versions.start_canary(view({}), document("x", "c"), CanaryShare(10), SIGNED, if_current=None)
    with pytest.raises(Conflict, match="no canary runs"):
        versions.move_canary(view({3: 1}, current=3), CanaryShare(50), SIGNED)
    with pytest.raises(Conflict, match="no canary runs"):
        versions.abort(view({3: 1}, current=3), SIGNED)


def test_a_canary_is_moved_promoted_and_aborted() -> None:
    seen = with_canary(view({3: 1, 4: 1}, current=3, previous=2, last=4), canary())
    moved = versions.move_canary(seen, CanaryShare(50), SIGNED)
    assert moved is not None and moved.canary is not None
    assert (moved.canary.percent, moved.canary.since, moved.detail) == (50, 1.0, "10 % of tenants to 50 % of tenants")
    assert versions.move_canary(seen, CanaryShare(10), SIGNED) is None
    promoted = versions.promote(seen, SIGNED, if_current=None)
    assert (promoted.current, promoted.previous, promoted.canary) == (4, 3, None)
    aborted = versions.abort(seen, SIGNED)
    assert (aborted.current, aborted.previous, aborted.canary) == (3, 2, None)


def test_promoting_does_not_undo_a_later_push_unseen() -> None:
    seen = with_canary(view({3: 1, 4: 1, 5: 1}, current=5, previous=3, last=5), canary())
    with pytest.raises(Conflict, match="would undo that"):
        versions.promote(seen, SIGNED, if_current=None)
    with pytest.raises(Conflict, match="not version 3"):
        versions.promote(seen, SIGNED, if_current=3)
    assert versions.promote(seen, SIGNED, if_current=5).current == 4


def test_a_rollback_ends_the_canary() -> None:
    seen = with_canary(view({2: 1, 3: 1, 4: 1}, current=3, previous=2, last=4), canary())
    change = versions.rollback(seen, None, SIGNED)
    assert change is not None
    assert (change.current, change.canary) == (2, None)
    assert change.detail == "ended the canary, version 4 for 10 % of tenants"
    assert versions.rollback(seen, 3, SIGNED) is None


def test_nothing_in_force_is_ever_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    """However full the store is: current, previous and canary stay, for each kind of change that keeps a document."""
    monkeypatch.setattr(versions, "KEPT_VERSIONS", 1)
    sizes = dict.fromkeys(range(1, 7), 10)
    seen = with_canary(view(sizes, current=2, previous=3, last=6), canary(4, base=2))
    pushed_over = pushed(seen, "other", keep_canary=True)
    assert pushed_over.dropped == (1, 3, 5, 6)
    started = versions.start_canary(seen, document("x", "new"), CanaryShare(1), SIGNED, if_current=None)
    assert started.dropped == (1, 4, 5, 6)


def test_shares_are_told() -> None:
    assert versions.share_text(canary(percent=0)) == "0 % of tenants"
    assert versions.share_text(canary(percent=0, tenants=("a",))) == "a"
    assert versions.share_text(canary(percent=0.5, tenants=tuple("abcdefg"))) == (
        "0.5 % of tenants and a, b, c, d, e and 2 more"
    )


def test_a_canary_comes_back_as_it_was() -> None:
    one = canary(tenants=("acme", "限流"))
    assert versions.read_canary(versions.canary_text(one)) == one
    assert versions.read_canary(versions.canary_text(None)) is None
    with pytest.raises(StoreUnavailable):
        versions.read_canary("10%")


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
