"""What a node of a cluster says about others, and which keys one script may touch."""

import pytest

from seawall.store.cluster import grouped, redirected
from seawall.store.endpoint import Endpoint

HERE = Endpoint("10.0.0.1", 7000)


@pytest.mark.parametrize(
    ("text", "endpoint"),
    [
        ("10.0.0.2:7001", Endpoint("10.0.0.2", 7001)),
        ("node-2.redis:7001", Endpoint("node-2.redis", 7001)),
        ("::1:7001", Endpoint("::1", 7001)),
        ("[::1]:7001", Endpoint("::1", 7001)),
        (":7001", Endpoint("10.0.0.1", 7001)),
    ],
)
def test_a_redirection_names_a_node(text: str, endpoint: Endpoint) -> None:
    assert redirected(text, HERE) == endpoint


@pytest.mark.parametrize("text", ["?:7001", "10.0.0.2", "10.0.0.2:", "10.0.0.2:0", "10.0.0.2:99999", "x:y", ""])
def test_a_redirection_to_nowhere_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="without an address"):
        redirected(text, HERE)
    with pytest.raises(ValueError, match="without an address"):
        redirected(":7001", None)


def test_keys_are_grouped_by_slot_in_order() -> None:
    # The slots of the specification's own example, and of CLUSTER KEYSLOT.
    assert grouped([b"123456789", b"{user1000}.a", b"foo", b"{user1000}.b"]) == {12739: [0], 3443: [1, 3], 12182: [2]}
