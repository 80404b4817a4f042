"""What Envoy must be told that no policy says: addresses, and the limits that both sides have to agree on."""

from dataclasses import dataclass

MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class MeshSettings:
    """Settings of one Envoy. Seconds end in `_s`, sizes are bytes.

    `sockets`: Unix socket of each gate worker. `max_hold_s`: the longest that ext_proc may hold a request
    (SEAWALL_MAX_HOLD). `max_body`: the largest body that Envoy buffers for it (SEAWALL_MAX_BODY). `xff_trusted_hops`:
    trusted proxies in front of this Envoy. `check_interval_s`: between two health checks of a worker
    (SEAWALL_CHECK_INTERVAL: a drained worker waits until Envoy has seen it). `drain_s`: how long a connection is given
    to end on a drain.
    """

    sockets: tuple[str, ...]
    host: str = "127.0.0.1"
    port: int = 10000
    admin_host: str = "127.0.0.1"
    admin_port: int = 9901
    max_hold_s: float = 120.0
    max_body: int = 8 * MIB
    xff_trusted_hops: int = 0
    check_interval_s: float = 1.0
    max_connections: int = 10000
    drain_s: float = 5.0
    access_log: bool = True

    def __post_init__(self) -> None:
        """Refuse what Envoy would take and never serve."""
        if not self.sockets:
            raise ValueError("a gate needs at least one worker socket")
