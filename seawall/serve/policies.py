"""The policies in force in one worker: follows the store, compiles aside, swaps in one step, keeps the last good ones."""

import asyncio
import contextlib
import dataclasses
import os
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from seawall import __version__
from seawall.caller.keys import Key, Tenant
from seawall.limits.descriptor import Node
from seawall.policy.canary import Canary, misfits
from seawall.policy.compile import compile_policy, digest_of
from seawall.policy.compiled import Policy
from seawall.policy.held import Held, Version, who_has
from seawall.policy.load import newer_than_this
from seawall.policy.mistake import Mistake, PolicyError
from seawall.policy.rule_files import compile_rule_files
from seawall.serve.envoy_ready import EnvoyReady
from seawall.serve.key_ring import KeyRing
from seawall.serve.policy_text import read_policy
from seawall.serve.rule_directory import RuleDirectory, Signature
from seawall.serve.settings import Settings
from seawall.serve.xds_session import rules_of
from seawall.serve.xds_source import XdsSource
from seawall.store.contract import Standing, Store, StoreUnavailable, UnknownVersion, WorkerReport

PROBE_TENANT = "seawall-probe"
FROM_FILE = 0
"""Version of a policy that came from the file because the store was away (`store_loss.start: serve`)."""


class Policies:
    """Holds the compiled policies. There is no current one until one is compiled; requests choose once and keep it."""

    def __init__(
        self,
        store: Store,
        settings: Settings,
        worker: str,
        on_refused: Callable[[int, str], None],
        on_store: Callable[[str], None] = lambda _: None,
        on_fault: Callable[[BaseException], None] = lambda _: None,
        clock: Callable[[], float] = time.monotonic,
        on_unsure: Callable[[str], None] = lambda _: None,
        on_rules: Callable[[Sequence[Mistake]], None] = lambda _: None,
    ):
        self._store = store
        self._settings = settings
        self._worker = worker
        self._on_refused = on_refused
        self._on_store = on_store
        self._on_rules = on_rules
        """Told of each set of rule files that is put in force, with what was passed over in it."""
        """Told why the store does not answer, and "" when it does again."""
        self._on_fault = on_fault
        self._envoy = EnvoyReady(settings.envoy_dir, on_unsure)
        self._trouble: str | None = None
        self._clock = clock
        self._held = Held()
        self.keys = KeyRing(store, worker)
        self.checked = 0.0
        self.workers_alive = max(1, settings.workers)
        self._handed: tuple[int, bytes] | None = None
        self._new_limits = asyncio.Event()
        self.judged = 0
        """Number of the limits handed over last that were taken or refused."""
        self._refused: dict[str, tuple[int, str]] = {}
        """By digest: versions that the store has in force and this worker has not, and why."""

    @property
    def current(self) -> Policy | None:
        """The policy that all tenants share."""
        return self._held.current.own if self._held.current else None

    @property
    def version(self) -> int:
        """Number of the current version."""
        return self._held.current.number if self._held.current else FROM_FILE

    @property
    def canary(self) -> int:
        """Number of the canary in force here; 0 without one."""
        return self._held.canary.number if self._held.canary else 0

    @property
    def held(self) -> int:
        """Count the versions that requests may name."""
        return len(self._held)

    @property
    def error(self) -> str:
        """Why a version is not in force here, or ""."""
        return "\n".join(why for _, why in self._refused.values())

    def choose(self, headers: Mapping[str, str]) -> Version | None:
        """Choose the version of a new request by whose key it presents; None without a policy."""
        return self._held.choose(headers, self.keys.issued)

    def named(self, label: str) -> Version | None:
        """Find the version that a request carries; None for one that this worker does not hold.

        A request without one ("": no ext_authz in the chain) is on the current version.
        """
        current = self._held.current
        if current is None or not label or label == current.label:
            return current
        return self._held.named(label, self._clock())

    async def follow(self) -> None:
        """Report, look, load; once a second and whenever the store tells of a change. Runs until cancelled."""
        files, xds = self._settings.limit_files, self._settings.limits_xds
        while True:
            try:
                if xds is not None:
                    await self._follow_xds(xds)
                elif files is not None:
                    await self._follow_rule_files(files)
                else:
                    await self._follow_store()
            except Exception as e:
                # Whatever it was, the last good policy stays, and the next look may go well.
                self._on_fault(e)
                await asyncio.sleep(self._settings.check_interval)

    async def _follow_store(self) -> None:
        interval = self._settings.check_interval
        while True:
            try:
                await self.check()
            except StoreUnavailable as e:
                self._store_is(str(e))
                await self._load_file()
                await asyncio.sleep(min(0.25, interval))
                continue
            await self._store.wait_change(interval)

    @property
    def waiting(self) -> str:
        """What a worker without a policy waits for, or ""."""
        if self.current is not None:
            return ""
        if self._trouble:
            return f"the store: {self._trouble}"
        if (xds := self._settings.limits_xds) is not None:
            return self.error or f"a rate limit configuration from the xDS server {xds.server}"
        return self.error or "a policy: push one with 'seawall policy push'"

    def _store_is(self, trouble: str) -> None:
        if bool(trouble) != bool(self._trouble) or self._trouble is None:
            self._on_store(trouble)
        self._trouble = trouble

    async def check(self) -> None:
        """One look at the store; raises StoreUnavailable."""
        standing = await self._store.report(self._report())
        self._store_is("")
        self.workers_alive = max(1, standing.workers)
        changed = await self._follow_versions(standing)
        if await self.keys.follow(standing.keys_stamp) or changed:
            # At once, so that whoever made the change sees who follows and who does not.
            await self._store.report(self._report())
        self._held.forget(self._clock())
        self.checked = time.time()
        await self.keys.flush()

    async def _follow_versions(self, standing: Standing) -> bool:
        """Put in force what the store says; whether anything changed here."""
        if standing.current is None:
            return False
        share = standing.canary
        before = self._refused
        wanted = {standing.digest, share.digest if share else standing.digest}
        self._refused = {digest: why for digest, why in before.items() if digest in wanted}
        known = self._held.current
        same = known is not None and (known.number, known.digest) == (standing.current, standing.digest)
        if same and share == self._held.share:
            return self._refused != before
        if share is not None and not same:
            # Whether it fits depends on what it stands beside.
            self._refused.pop(share.digest, None)
        current = await self._version(standing.current, standing.digest) or known
        if current is not None and known is None:
            known = await self._begin(current.digest)
        if current is not None and current is not known and not await self._envoy_has(current, known):
            current = known
        if current is None:
            return self._refused != before
        canary = await self._canary(share, current.own) if share else None
        if current is known and (canary, share if canary else None) == (self._held.canary, self._held.share):
            return self._refused != before
        if canary is None or share is None:
            self._held.swap(current, self._clock())
        else:
            tenants = await asyncio.to_thread(who_has, share, current, canary)
            self._held.swap(current, self._clock(), canary, share, tenants)
        return True

    async def _version(self, number: int, digest: str) -> Version | None:
        """Get a version that is held, or compile it; None where it can't be used here, which is told once."""
        if (held := self._held.get(number, digest)) is not None:
            return held
        if digest in self._refused:
            return None
        try:
            text, info = await self._store.document(number)
            if info.digest != digest:
                # A store that lost its data gives numbers anew.
                return None
            if newer_than_this(info.needs):
                why = f"version {number} needs release {info.needs}, this is {__version__}"
                self._refuse(number, digest, why)
                return None
            policy = await asyncio.to_thread(self._compile, text, f"version {number}")
        except UnknownVersion:
            return None
        except PolicyError as e:
            self._refuse(number, digest, str(e))
            return None
        return Version(number, digest, policy, len(text))

    async def _begin(self, digest: str) -> Version | None:
        """Serve with the newest version that Envoy is ready for, where it is not for the current one.

        A worker that starts takes the place of one that goes: it must not wait for a push that came just then.
        """
        for number, ready in await self._envoy.meanwhile(digest):
            if (version := await self._version(number, ready)) is not None:
                self._held.swap(version, self._clock())
                return version
        return None

    async def _envoy_has(self, version: Version, known: Version | None) -> bool:
        """Wait until Envoy has the pools of a version; False where it refused them, which is told once."""
        before, file = known.own if known else None, f"version {version.number}"
        try:
            await self._envoy.wait(version.own, version.digest, before, file)
        except PolicyError as e:
            self._refuse(version.number, version.digest, str(e))
            return False
        return True

    async def _canary(self, share: Canary, current: Policy) -> Version | None:
        version = await self._version(share.version, share.digest)
        if version is not None and (lines := misfits(current, version.own)):
            self._refuse(share.version, share.digest, "\n".join(lines))
            return None
        return version

    def _refuse(self, number: int, digest: str, why: str) -> None:
        if self._refused.get(digest) != (number, why):
            self._refused[digest] = (number, why)
            self._on_refused(number, why)

    async def _load_file(self) -> None:
        """Start without the store where the policy in the file allows it."""
        if self.current is not None or self._settings.policy_file is None:
            return
        path = self._settings.policy_file
        try:
            text = await asyncio.to_thread(read_policy, path)
            policy = self._compile(text, path)
        except PolicyError as e:
            self._on_refused(FROM_FILE, str(e))
            return
        if policy.store_loss.start == "serve":
            self._swap(Version(FROM_FILE, digest_of(text), policy, len(text)))

    async def _follow_rule_files(self, path: str) -> None:
        """Serve a folder's limits instead of the store's policy; a bad set leaves the old rules in force."""
        directory = RuleDirectory(Path(path), self._settings.ignore_dot_files)
        seen: Signature | None = None
        while True:
            signature = await asyncio.to_thread(directory.signature)
            if signature != seen:
                seen, number = signature, self.version + 1
                try:
                    rules = await asyncio.to_thread(directory.read)
                    found = compile_rule_files(rules, merge=self._settings.limit.merge)
                    self._swap(Version(number, "", self._with_limits(found.limits)))
                    self._refused = {}
                    self._on_rules(found.warnings)
                except PolicyError as e:
                    self._refuse(number, "", str(e))
                except OSError as e:
                    seen = None
                    self._refuse(number, "", f"{e.filename}: {e.strerror}")
            with contextlib.suppress(StoreUnavailable):
                self.workers_alive = max(1, (await self._store.report(self._report())).workers)
                self.checked = time.time()
            await asyncio.sleep(self._settings.check_interval)

    def hand(self, number: int, data: bytes) -> None:
        """Take limits from the supervisor: a response of the control plane, which it has found good."""
        self._handed = number, data
        self._new_limits.set()

    async def _follow_xds(self, source: XdsSource) -> None:
        """Serve what the supervisor hands over; what can't be used leaves the old rules in force."""
        while True:
            self._new_limits.clear()
            if self._handed is not None and self._handed[0] != self.judged:
                number, data = self._handed
                try:
                    rules = await asyncio.to_thread(rules_of, data, merge=source.merge)
                    self._swap(Version(number, "", self._with_limits(rules.limits)))
                    self._refused = {}
                    self._on_rules(())
                except ValueError as e:
                    self._refuse(number, "", str(e))
                self.judged = number
            with contextlib.suppress(StoreUnavailable):
                self.workers_alive = max(1, (await self._store.report(self._report())).workers)
                self.checked = time.time()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._new_limits.wait(), self._settings.check_interval)

    def _with_limits(self, limits: Mapping[str, Node]) -> Policy:
        """A policy of nothing but limits."""
        policy = compile_policy("")
        loss = self._settings.limit.store_loss
        if loss is not None:
            policy = dataclasses.replace(policy, store_loss=dataclasses.replace(policy.store_loss, limits=loss))
        return dataclasses.replace(policy, limits=limits)

    def _compile(self, text: str, file: str) -> Policy:
        policy = compile_policy(text, file=file, upstreams=self._settings.upstreams, max_body=self._settings.max_body)
        return with_probe(policy, self._settings.probe_key)

    def _swap(self, version: Version) -> None:
        self._held.swap(version, self._clock())

    def _report(self) -> WorkerReport:
        return WorkerReport(
            worker=self._worker,
            pid=os.getpid(),
            host=socket.gethostname(),
            version=self.version,
            checked=self.checked or time.time(),
            error=self.error,
            release=__version__,
            canary=self.canary,
            keys=len(self.keys.issued),
            keys_stamp=self.keys.stamp,
        )


def with_probe(policy: Policy, sha256: str | None) -> Policy:
    """Add the key of `seawall up`'s own readiness request, so that it uses up nobody's limit."""
    if sha256 is None:
        return policy
    tenant = Tenant(PROBE_TENANT, policy.classes[-1])
    digest = bytes.fromhex(sha256)
    keys: dict[bytes, Any] = {**policy.callers.keys, digest: Key(PROBE_TENANT, tenant, digest)}
    return dataclasses.replace(policy, callers=dataclasses.replace(policy.callers, keys=keys))
