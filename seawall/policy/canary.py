"""A canary: a version of the policy that some tenants have before all others.

What follows the tenant and what waits is decided by section: a tenant's callers, prefilter, limits and output come from
its version; classes, engines, pools, models, retries, profiles and the loss of the store are one for all and wait for
promotion.
"""

import hashlib
from collections.abc import Collection
from dataclasses import dataclass, replace

from seawall.policy.compiled import Policy

TENANT_SECTIONS = ("callers", "prefilter", "limits", "output")
"""Sections that a canary changes for its tenants."""
SHARED_SECTIONS = ("classes", "engines", "pools", "models", "retries", "profiles", "store_loss")
"""Sections that are one for all tenants, and change when the canary is promoted."""

_SCALE = 2**64


@dataclass(frozen=True, slots=True)
class Canary:
    """A version that runs for `percent` of the tenants, and for those that `tenants` names.

    `base` is the version that was current when it began: what a promotion is held against. `salt` is the number of the
    first version of this canary and stays when a corrected one takes its place, so the tenants stay the same ones.
    `since` is unix seconds, `digest` the SHA-256 of its document (hex).
    """

    version: int
    digest: str
    percent: float
    tenants: tuple[str, ...]
    salt: int
    base: int
    by: str
    reason: str
    since: float

    def holds(self, tenant: str) -> bool:
        """Say whether a tenant is among those that have this version."""
        return tenant in self.tenants or share_of(tenant, self.salt) < self.percent / 100


def share_of(tenant: str, salt: int) -> float:
    """Give a tenant its place from 0 to 1: always the same, so a larger share only adds tenants."""
    digest = hashlib.blake2b(f"{salt}:{tenant}".encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "big") / _SCALE


def chosen(canary: Canary, tenants: Collection[str]) -> frozenset[str]:
    """Pick the tenants that have a canary's version."""
    return frozenset(tenant for tenant in tenants if canary.holds(tenant))


def scoped(shared: Policy, own: Policy) -> Policy:
    """Join what a tenant has by `own` with what all tenants share by `shared`."""
    if shared is own:
        return own
    return replace(
        shared,
        digest=own.digest,
        callers=own.callers,
        prefilter=own.prefilter,
        limits=own.limits,
        output=own.output,
    )


def misfits(current: Policy, canary: Policy) -> list[str]:
    """Name what a canary's tenants would need and the current version has not: each as a line for its author."""
    known = set(current.classes)
    found = [(f"callers.tenants.{tenant.name}.class", tenant.class_) for tenant in canary.callers.tenants.values()]
    found += [(f"prefilter.body.per_class.{name}", name) for name in canary.prefilter.body_per_class]
    found += [(f"output.per_class.{name}", name) for name in canary.output.per_class]
    allowed = ", ".join(current.classes)
    return [
        f"{where}: class '{name}' is not in the current version, and classes wait for promotion; allowed: {allowed}"
        for where, name in found
        if name not in known
    ]
