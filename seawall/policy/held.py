"""Which versions of the policy a worker holds: the current one, the canary, and those that requests still name.

ext_authz chooses a version for a request; whatever is asked about it later names that one. So versions that were in force
or named within the last ten minutes stay, within bounds. What a tenant has comes from the version of its request, what
all tenants share from the current one, whichever version that is.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from seawall.caller.keys import NONE_ISSUED, Issued
from seawall.policy.canary import Canary, chosen, scoped
from seawall.policy.compiled import Policy

USED_WITHIN = 600.0
"""Seconds that a version stays after it was in force or named last."""
MOST = 16
"""Versions held beside the current one and the canary."""
MOST_BYTES = 16 * 2**20
"""Bytes of their documents together."""


@dataclass(slots=True, eq=False)
class Version:
    """A version in a worker. `own` is what its document says, `policy` what its requests are decided by.

    `label` is what requests carry. `size` is that of the document, bytes; `used` a time in the holder's seconds.
    """

    number: int
    digest: str
    own: Policy
    size: int = 0
    used: float = 0.0
    policy: Policy = field(init=False)
    label: str = field(init=False)

    def __post_init__(self) -> None:
        self.policy = self.own
        self.label = str(self.number)


class Held:
    """Holds versions. Times are seconds of a clock that never goes back."""

    def __init__(self) -> None:
        self.current: Version | None = None
        self.canary: Version | None = None
        self.share: Canary | None = None
        """Whom the canary is for."""
        self._tenants: frozenset[str] = frozenset()
        self._by_label: dict[str, Version] = {}

    def __len__(self) -> int:
        return len(self._by_label)

    def get(self, number: int, digest: str) -> Version | None:
        """Find a version that need not be compiled again; numbers are given anew by a store that lost its data."""
        version = self._by_label.get(str(number))
        return version if version is not None and version.digest == digest else None

    def swap(
        self,
        current: Version,
        now: float,
        canary: Version | None = None,
        share: Canary | None = None,
        tenants: frozenset[str] = frozenset(),
    ) -> None:
        """Put versions in force, in one step as requests see it; `tenants` (`who_has`) are on the canary."""
        before = (self.current, self.canary)
        held = {**self._by_label}
        for version in (*before, current, canary):
            if version is not None:
                version.used = now
                held[version.label] = version
        for version in held.values():
            version.policy = scoped(current.own, version.own)
        self._by_label = held
        self._tenants = tenants
        self.current, self.canary, self.share = current, canary, share
        self.forget(now)

    def forget(self, now: float) -> None:
        """Let go of versions that were not used lately; beyond the bounds the longest unused go first."""
        kept, size = 0, 0
        for version in sorted(self._by_label.values(), key=lambda version: -version.used):
            if version is self.current or version is self.canary:
                continue
            kept, size = kept + 1, size + version.size
            if now - version.used > USED_WITHIN or kept > MOST or size > MOST_BYTES:
                del self._by_label[version.label]
                kept, size = kept - 1, size - version.size

    def choose(self, headers: Mapping[str, str], issued: Issued = NONE_ISSUED) -> Version | None:
        """Choose the version of a new request, by whose key it presents; None without any version.

        The key is looked up in the current version first, then in the canary. Whoever is not known is on the current
        version, and so is who comes without a key.
        """
        canary, current = self.canary, self.current
        if canary is None or current is None:
            return current
        tenant = current.own.callers.tenant_of(headers, issued) or canary.own.callers.tenant_of(headers, issued)
        return canary if tenant in self._tenants else current

    def named(self, label: str, now: float) -> Version | None:
        """Find the version that a request carries; None for one that is not held."""
        version = self._by_label.get(label)
        if version is not None:
            version.used = now
        return version


def who_has(share: Canary, current: Version, canary: Version) -> frozenset[str]:
    """Find the tenants that are on a canary: a hash for each tenant, so not for the loop that serves requests."""
    return chosen(share, {*current.own.callers.tenants, *canary.own.callers.tenants})
