"""`seawall key add`, `revoke` and `list`: keys in the store. A key is shown once, only its SHA-256 is kept."""

import json
import re
import secrets
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from seawall.cli.failure import Failure
from seawall.cli.key.hashing import new_key, sha256_of
from seawall.cli.store import AUTHOR, JSON, REASON, STORE, ask, author_or_me, echo_json, moment, one_line

if TYPE_CHECKING:
    from seawall.policy.document import Document
    from seawall.policy.document import Key as PolicyKey
    from seawall.store.contract import Control
    from seawall.store.key_contract import KeyRecord, KeyUse

_SHA256 = re.compile(r"[0-9a-f]{64}", re.IGNORECASE)


@click.command()
@click.option("--tenant", required=True, metavar="T", help="Whose key it is; a tenant of the current policy.")
@click.option("--expires", metavar="WHEN", help="A date, a date and time, or a duration from now: 2027-06-30, 90d.")
@click.option("--id", "id_", metavar="ID", help="What logs and limits call it; default: the tenant and six letters.")
@click.option("--hash", "sha256", metavar="HEX", help="Of a key that exists already; without it a new one is made.")
@AUTHOR
@REASON
@STORE
@JSON
def add(
    tenant: str,
    expires: str | None,
    id_: str | None,
    sha256: str | None,
    author: str | None,
    reason: str,
    store: str | None,
    as_json: bool,
) -> None:
    """Issue an API key; all workers know it within a second.

    The key is shown this once and kept nowhere: the store has its SHA-256 only.

    \b
    Example:
      seawall key add --tenant acme
      seawall key add --tenant acme --expires 2027-06-30 --id acme-ci
    """
    from seawall.store.key_contract import KeyRecord

    until = _until(expires) if expires is not None else None
    if sha256 is not None and not _SHA256.fullmatch(sha256):
        raise Failure("--hash: 64 hex digits are expected (`seawall key hash`)")
    key = new_key() if sha256 is None else None
    digest = sha256_of(key) if key is not None else str(sha256).lower()
    name = _id(id_, tenant)

    async def go(control: "Control") -> None:
        documents = await _documents(control)
        if not any(tenant in document.callers.tenants for document in documents):
            raise Failure(f"no tenant '{tenant[:80]}' in the current policy; {_known(documents)}")
        for known in _policy_keys(documents):
            if known.key.id == name:
                raise Failure(f"id '{name}' is taken by a key of the policy")
            if known.key.sha256 == digest:
                raise Failure(f"this key is in the policy already, as '{known.key.id}'")
        record = KeyRecord(name, tenant, digest, time.time(), author_or_me(author), reason, until)
        await control.add_key(record)

    ask(store, go)
    if as_json:
        click.echo(json.dumps({"id": name, "tenant": tenant, "key": key, "sha256": digest, "expires": until}))
        return
    click.echo(f"id:      {name}")
    if key is not None:
        click.echo(f"key:     {key}")
    click.echo(f"expires: {moment(until) if until is not None else 'never'}")
    if key is not None:
        click.echo("The key is not kept anywhere: give it to its user now.", err=True)


@click.command()
@click.argument("id_", metavar="ID")
@AUTHOR
@STORE
@JSON
def revoke(id_: str, author: str | None, store: str | None, as_json: bool) -> None:
    """Revoke a key for good, of the store or of the policy; all workers refuse it within a second.

    A revoked key stays refused even if a policy that lists it is pushed later.

    \b
    Example:
      seawall key revoke acme-3f9c2a
    """
    from seawall.store.key_contract import KeyRecord, UnknownKey

    by = author_or_me(author)

    async def go(control: "Control") -> "tuple[list[KeyRecord], bool]":
        found = [known for known in _policy_keys(await _documents(control)) if known.key.id == id_]
        try:
            record = await control.key(id_)
        except UnknownKey:
            if not found:
                raise Failure(f"no key '{id_[:80]}' in the store or in the policy") from None
            record = KeyRecord(id_, "", found[0].key.sha256, time.time(), by, f"in the policy, of {found[0].tenant}")
        others = any(known.key.sha256 != record.sha256 for known in found)
        return [await control.revoke_key(record, by=by, at=time.time())], others

    (record,), others = ask(store, go)
    if as_json:
        click.echo(json.dumps({"id": record.id, "revoked": record.revoked, "by": record.revoked_by}))
    else:
        click.echo(f"{record.id} is revoked since {moment(record.revoked or 0)}, by {one_line(record.revoked_by)}")
    if others:
        click.echo(f"seawall: the policy has another key with the id '{id_}', which is still good", err=True)


@click.command("list")
@click.option("--tenant", metavar="T", help="Only keys of this tenant.")
@click.option("--all", "every", is_flag=True, help="Revoked and expired keys too.")
@STORE
@JSON
def list_(tenant: str | None, every: bool, store: str | None, as_json: bool) -> None:
    """List API keys of the store and of the current policy, with how often and when last each was let through.

    Counts are those of all workers, up to the last second.

    \b
    Example:
      seawall key list --tenant acme
      seawall key list --all --json | jq '.[] | select(.last_used == null)'
    """
    now = time.time()

    async def go(control: "Control") -> list[dict[str, Any]]:
        documents, uses = await _documents(control), await control.key_uses()
        records = [record async for some in control.all_keys() for record in some]
        return list(_rows(records, documents, uses, now))

    found = [
        row
        for row in sorted(ask(store, go), key=lambda row: (row["tenant"], row["id"]))
        if tenant in {None, row["tenant"]} and (every or row["state"] in {"good", "no tenant"})
    ]
    if as_json:
        echo_json(found)
    else:
        _table(found)


def _table(found: list[dict[str, Any]]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table("id", "tenant", "in", "state", "expires", "used", "last used", "by")
    for row in found:
        expires = moment(row["expires"]) if row["expires"] else "never"
        last = moment(row["last_used"]) if row["last_used"] else "never"
        cells = (row["id"], row["tenant"], row["in"], row["state"], expires, str(row["used"]), last, row["by"])
        table.add_row(*map(one_line, cells))
    Console().print(table, markup=False)


@dataclass(frozen=True, slots=True)
class _Known:
    tenant: str
    key: "PolicyKey"


async def _documents(control: "Control") -> "list[Document]":
    """Load what is in force: the current version, then the canary."""
    from seawall.cli.policy.documents import kept_document

    canary = await control.canary()
    versions = [await control.current(), canary.version if canary else None]
    return [document for v in versions if (document := await kept_document(control, v)) is not None]


def _policy_keys(documents: "Iterable[Document]") -> Iterator[_Known]:
    for document in documents:
        for name, tenant in document.callers.tenants.items():
            for key in tenant.keys:
                yield _Known(name, key)


def _known(documents: "Iterable[Document]") -> str:
    from seawall.policy.mistake import listing

    names = dict.fromkeys(name for document in documents for name in document.callers.tenants)
    return f"there are: {listing(names)}" if names else "it has none"


def _id(given: str | None, tenant: str) -> str:
    if given is None:
        return f"{tenant[:100]}-{secrets.token_hex(3)}"
    if not re.fullmatch(r"[A-Za-z0-9._:/@+-]{1,128}", given):
        raise Failure("--id: letters, digits and . _ : / @ + - are allowed, at most 128 characters")
    return given


def _until(text: str) -> float:
    """Read a date, a moment or a duration from now, as a unix time."""
    from seawall.policy.fields import expiry
    from seawall.policy.notation import duration

    now = time.time()
    try:
        until = now + duration(text)
    except ValueError:
        try:
            until = expiry(text)
        except ValueError as e:
            raise Failure(f"--expires: '{text[:40]}' is not allowed: {e}, or a duration from now such as 90d") from None
    if until <= now:
        raise Failure(f"--expires: '{text[:40]}' is over already")
    return until


def _rows(
    records: "Iterable[KeyRecord]", documents: "list[Document]", uses: "Any", now: float
) -> Iterator[dict[str, Any]]:
    tenants = {name for document in documents for name in document.callers.tenants}
    revoked = {}
    for record in records:
        if record.revoked is not None:
            revoked[record.sha256] = record
        if record.tenant:
            state = _state(record.revoked, record.expires, now)
            if state == "good" and record.tenant not in tenants:
                state = "no tenant"
            yield _row(record.id, record.tenant, "store", state, record.expires, uses.get(record.id), record.by)
    seen = set()
    for known in _policy_keys(documents):
        if known.key.id in seen:
            continue
        seen.add(known.key.id)
        gone = revoked.get(known.key.sha256)
        state = _state(gone.revoked if gone else None, known.key.expires, now)
        yield _row(known.key.id, known.tenant, "policy", state, known.key.expires, uses.get(known.key.id), "")


def _state(revoked: float | None, expires: float | None, now: float) -> str:
    if revoked is not None:
        return "revoked"
    return "expired" if expires is not None and now >= expires else "good"


def _row(
    id_: str, tenant: str, kept: str, state: str, expires: float | None, use: "KeyUse | None", by: str
) -> dict[str, Any]:
    return {
        "id": id_,
        "tenant": tenant,
        "in": kept,
        "state": state,
        "expires": expires,
        "used": use.uses if use else 0,
        "last_used": use.last if use else None,
        "by": by,
    }
