"""API keys become callers.

Keys are known by their SHA-256 only. A presented key is hashed and looked up by digest, so neither the time of the
look-up nor a copy of the policy tells anything about a key.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from hmac import compare_digest

from seawall.decision import Reason, Refusal


@dataclass(frozen=True, slots=True)
class Tenant:
    """Who pays: a name and the priority class of its requests."""

    name: str
    class_: str


@dataclass(frozen=True, slots=True)
class Key:
    """One API key of a tenant; `expires` is the first unix second at which it is no longer good, or None."""

    id: str
    tenant: Tenant
    sha256: bytes
    expires: float | None = None


@dataclass(frozen=True, slots=True)
class Caller:
    """Who a request is charged to. `key` is the key's id, "" without a key; never the key itself."""

    tenant: str
    class_: str
    key: str


@dataclass(frozen=True, slots=True)
class Callers:
    """All tenants and keys of a policy. `keys` is by SHA-256 digest (32 bytes)."""

    anonymous: Tenant | None
    key_headers: tuple[str, ...]
    tenants: Mapping[str, Tenant]
    keys: Mapping[bytes, Key]

    def identify(self, headers: Mapping[str, str], now: float) -> Caller | Refusal:
        """Find the caller by the first of `key_headers` that is present; `headers` has lower-case names, `now` unix s.

        A key sent in two headers or twice in one is ambiguous and refused: what the gate checked must be what an
        engine or a later proxy would read.
        """
        presented: str | None = None
        for name in self.key_headers:
            value = headers.get(name)
            if not value:
                continue
            secret = _secret(name, value)
            if not secret or "," in secret or (presented is not None and presented != secret):
                return Refusal(Reason.INVALID_KEY, f"The API key in header '{name}' is malformed or ambiguous.")
            presented = secret
        if presented is None:
            if self.anonymous is not None:
                return Caller(self.anonymous.name, self.anonymous.class_, "")
            return Refusal(
                Reason.MISSING_KEY,
                "No API key was sent. Send one as 'Authorization: Bearer KEY' or in the header 'x-api-key'.",
            )
        digest = hashlib.sha256(presented.encode("utf-8", "surrogateescape")).digest()
        key = self.keys.get(digest)
        if key is None or not compare_digest(key.sha256, digest):
            return Refusal(Reason.INVALID_KEY, "The API key is not known.")
        if key.expires is not None and now >= key.expires:
            return Refusal(Reason.EXPIRED_KEY, f"The API key '{key.id}' has expired.")
        return Caller(key.tenant.name, key.tenant.class_, key.id)


def _secret(name: str, value: str) -> str:
    """Take the key out of a header's value; only `authorization` has a scheme before it (RFC 6750 §2.1)."""
    if name != "authorization":
        return value.strip()
    scheme, _, secret = value.strip().partition(" ")
    return secret.strip() if scheme.lower() == "bearer" else ""
