"""How long a control plane is left alone."""

import json
from dataclasses import asdict

import pytest

from seawall.rpc.tls import ClientTls
from seawall.serve.settings import Settings
from seawall.serve.xds_source import XdsSource


@pytest.mark.parametrize(
    ("unreached", "barren", "jitter", "draw", "seconds"),
    [
        (1, 0, True, 0.5, 3.0),  # no server: the connect interval, however often
        (9, 5, True, 0.5, 3.0),
        (1, 0, True, 0.0, 1.5),
        (1, 0, True, 1.0, 4.5),
        (1, 0, False, 0.0, 3.0),
        (0, 0, True, 0.5, 10.0),  # a stream that brought something has ended
        (0, 1, True, 0.5, 20.0),  # and the next ones brought nothing
        (0, 2, True, 0.5, 40.0),
        (0, 3, True, 0.5, 60.0),
        (0, 10_000, True, 0.5, 60.0),
        (0, 0, True, 0.0, 5.0),
        (0, 0, True, 1.0, 15.0),
        (0, 3, False, 0.0, 60.0),
    ],
)
def test_wait(unreached: int, barren: int, jitter: bool, draw: float, seconds: float) -> None:
    """By the Go service's variables: initial, doubled, longest, spread."""
    assert XdsSource(jitter=jitter).wait(unreached, barren, lambda: draw) == pytest.approx(seconds)


def test_an_initial_wait_above_the_longest() -> None:
    """The longest wins."""
    assert XdsSource(initial=90, longest=5, jitter=False).wait(0, 0, lambda: 0) == 5


def test_json() -> None:
    """It reaches a worker as it is."""
    source = XdsSource(
        node_metadata=(("a", "b"),), headers=(("x", "y"), ("x", "z")), tls=ClientTls("ca", "c", "k", "n"), merge=True
    )
    for each in (source, XdsSource()):
        assert XdsSource.from_data(json.loads(json.dumps(asdict(each)))) == each
        settings = Settings(limits_xds=each)
        assert Settings.from_json(settings.to_json()) == settings
        assert settings.without_policy
    assert not Settings().without_policy
