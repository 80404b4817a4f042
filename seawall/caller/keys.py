"""API keys become callers.

Keys are known by their SHA-256 only. A presented key is hashed and looked up by digest, so neither the time of the
look-up nor a copy of the policy tells anything about a key.

A key stands in the policy, or was issued by `seawall key add` and is kept in the store. Where both know it, the policy
says whose it is and until when; one that was revoked in the store is refused whatever the policy says.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from hmac import compare_digest
from types import MappingProxyType

import msgspec

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


class IssuedKey(msgspec.Struct, frozen=True, gc=False):
    """One API key kept in the store. `tenant` is the name of one; times are unix seconds, None is never.

    There may be a hundred thousand of them: no garbage collection has to look at them.
    """

    id: str
    tenant: str
    expires: float | None = None
    revoked: float | None = None


Issued = Mapping[bytes, IssuedKey]
"""By SHA-256 digest (32 bytes)."""
NONE_ISSUED: Issued = MappingProxyType({})


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

    def identify(self, headers: Mapping[str, str], now: float, issued: Issued = NONE_ISSUED) -> Caller | Refusal:
        """Find the caller by the first of `key_headers` that is present; `headers` has lower-case names, `now` unix s.

        A key sent in two headers or twice in one is ambiguous and refused: what the gate checked must be what an
        engine or a later proxy would read.
        """
        digest = self._presented(headers)
        if isinstance(digest, Refusal):
            return digest
        if digest is None:
            if self.anonymous is not None:
                return Caller(self.anonymous.name, self.anonymous.class_, "")
            return Refusal(
                Reason.MISSING_KEY,
                "No API key was sent. Send one as 'Authorization: Bearer KEY' or in the header 'x-api-key'.",
            )
        given = issued.get(digest)
        if given is not None and given.revoked is not None:
            return Refusal(Reason.REVOKED_KEY, f"The API key '{given.id}' has been revoked.")
        key = self.keys.get(digest)
        if key is not None and compare_digest(key.sha256, digest):
            id_, tenant, expires = key.id, key.tenant, key.expires
        elif given is not None and (found := self.tenants.get(given.tenant)) is not None:
            id_, tenant, expires = given.id, found, given.expires
        elif given is not None:
            return Refusal(Reason.INVALID_KEY, f"The tenant of the API key '{given.id}' is not known.")
        else:
            return Refusal(Reason.INVALID_KEY, "The API key is not known.")
        if expires is not None and now >= expires:
            return Refusal(Reason.EXPIRED_KEY, f"The API key '{id_}' has expired.")
        return Caller(tenant.name, tenant.class_, id_)

    def tenant_of(self, headers: Mapping[str, str], issued: Issued = NONE_ISSUED) -> str | None:
        """Name the tenant whose key is presented, be it expired; None without a key that is known here."""
        digest = self._presented(headers)
        if not isinstance(digest, bytes):
            return None
        key = self.keys.get(digest)
        if key is not None:
            return key.tenant.name
        given = issued.get(digest)
        return given.tenant if given is not None and given.tenant in self.tenants else None

    def _presented(self, headers: Mapping[str, str]) -> bytes | Refusal | None:
        """Digest of the key that is presented."""
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
            return None
        return hashlib.sha256(presented.encode("utf-8", "surrogateescape")).digest()


def _secret(name: str, value: str) -> str:
    """Take the key out of a header's value; only `authorization` has a scheme before it (RFC 6750 §2.1)."""
    if name != "authorization":
        return value.strip()
    scheme, _, secret = value.strip().partition(" ")
    return secret.strip() if scheme.lower() == "bearer" else ""
