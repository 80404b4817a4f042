"""What an operator sets of rate limits beside their rules: how calls are answered, counters named, files read.

The defaults are those of a gate with a policy. Run in the place of envoyproxy/ratelimit, its variables say otherwise
(ratelimit/environment.py).
"""

from dataclasses import dataclass
from typing import Any, Literal

from seawall.limits.answer import Modes
from seawall.limits.response import HeaderNames
from seawall.limits.statistics import NEAR_RATIO

BYTES_OF_ENTRY = 256
"""What one counter takes in the over-limit cache, about: LOCAL_CACHE_SIZE_IN_BYTES is a number of entries here."""


@dataclass(frozen=True, slots=True)
class LimitSettings:
    """`modes` is plain data for `Modes`; `headers` are the three names, None for no headers.

    `key_prefix` (CACHE_KEY_PREFIX) gives counters envoyproxy/ratelimit's key text, None has keys of our own; `jitter`:
    seconds that such a key lives longer, at most. `cache` counts entries of the over-limit cache. `merge`: a domain may
    stand in several files. `store_loss` wins over the policy's, where there is no policy. `needs_rules`: not healthy
    without any domain. `needs_store`: not healthy while the store is away.
    """

    quota: bool = False
    shadow: bool = False
    stop: bool = False
    near_ratio: float = NEAR_RATIO
    headers: tuple[str, str, str] | None = None
    metadata: bool = False
    key_prefix: str | None = None
    jitter: int = 0
    cache: int = 0
    merge: bool = False
    store_loss: Literal["share", "allow", "deny"] | None = None
    needs_rules: bool = False
    needs_store: bool = False

    @property
    def modes(self) -> Modes:
        """The part that a call is answered by."""
        return Modes(
            quota=self.quota,
            shadow=self.shadow,
            stop=self.stop,
            near_ratio=self.near_ratio,
            headers=HeaderNames(*self.headers) if self.headers is not None else None,
            metadata=self.metadata,
            key_prefix=self.key_prefix,
        )

    @classmethod
    def from_plain(cls, data: dict[str, Any]) -> "LimitSettings":
        """Inverse of `dataclasses.asdict` through JSON."""
        headers = data["headers"]
        return cls(**{**data, "headers": tuple(headers) if headers is not None else None})
