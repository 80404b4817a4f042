"""Where limits come from when a control plane sends them, and how long to wait before it is asked again."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from seawall.rpc.tls import ClientTls

Pairs = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class XdsSource:
    """A server of rate limit configurations by xDS. Times are in seconds, sizes in bytes.

    The defaults are those of envoyproxy/ratelimit.
    """

    server: str = "localhost:18000"
    node_id: str = "default"
    node_metadata: Pairs = ()
    headers: Pairs = ()
    """Sent with the stream; may hold a credential, so never logged."""
    tls: ClientTls | None = None
    max_message: int | None = None
    """None: 4 MiB, gRPC's own."""
    connect_interval: float = 3.0
    """Between two tries to reach a server that can't be reached."""
    initial: float = 10.0
    longest: float = 60.0
    """After a stream that has ended: the first wait, doubled for each stream in a row that brought nothing."""
    random_factor: float = 0.5
    jitter: bool = True
    """Whether `random_factor` counts."""
    merge: bool = False
    """A domain may stand in several resources."""

    @classmethod
    def from_data(cls, data: dict[str, Any]) -> "XdsSource":
        """Inverse of dataclasses.asdict after a way through JSON."""
        pairs = {name: tuple((key, value) for key, value in data[name]) for name in ("node_metadata", "headers")}
        tls = ClientTls(**data["tls"]) if data["tls"] is not None else None
        return cls(**{**data, **pairs, "tls": tls})

    def wait(self, unreached: int, barren: int, draw: Callable[[], float]) -> float:
        """Seconds until the next try; `draw` gives a random number in [0, 1).

        `unreached` counts the tries in a row that found no server. Without any, a stream was open and has ended:
        `barren` counts the streams in a row that brought nothing that could be used.
        """
        if unreached:
            base, spread = self.connect_interval, 0.5
        else:
            base, spread = min(self.longest, self.initial * 2.0 ** min(barren, 32)), self.random_factor
        if not self.jitter:
            return base
        return base * (1 + spread * (2 * draw() - 1))
