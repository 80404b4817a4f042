"""Last words of children that could not have their port."""

import pytest

from seawall.cli.ports import is_port_lost


@pytest.mark.parametrize(
    ("words", "lost"),
    [
        ("6058:M 01 Dec 2026 08:33:20.106 # Failed listening on port 16379 (tcp), aborting.", True),
        ("seawall: cannot listen on 127.0.0.1:8100: the port is already in use", True),
        ("[critical] error initializing config: cannot bind '127.0.0.1:9901': Address already in use", True),
        ('level=error msg="can\'t listen" error="… (\'127.0.0.1\', 9902): address already in use"', True),
        ('level=error msg="can\'t listen" error="another supervisor, process 7, serves /run/seawall"', False),
        ("Out Of Memory allocating 3 bytes", False),
        ("", False),
    ],
)
def test_is_port_lost(words: str, lost: bool) -> None:
    """Only these start a gate again with other ports."""
    assert is_port_lost(words) is lost
