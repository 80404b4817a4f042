"""The policy in force in one worker: follows the store, compiles aside, swaps one reference, keeps the last good one."""

import asyncio
import contextlib
import dataclasses
import os
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from seawall import __version__
from seawall.caller.keys import Key, Tenant
from seawall.policy.compile import compile_policy
from seawall.policy.compiled import Policy
from seawall.policy.load import newer_than_this
from seawall.policy.mistake import PolicyError
from seawall.policy.rule_files import compile_rule_files
from seawall.serve.rule_directory import RuleDirectory, Signature
from seawall.serve.settings import Settings
from seawall.store.contract import Store, StoreUnavailable, UnknownVersion, WorkerReport

PROBE_TENANT = "seawall-probe"
FROM_FILE = 0
"""Version of a policy that came from the file because the store was away (`store_loss.start: serve`)."""


class Policies:
    """Holds the compiled policy. `current` is None until one is compiled; requests read it once and keep it."""

    def __init__(
        self,
        store: Store,
        settings: Settings,
        worker: str,
        on_refused: Callable[[int, str], None],
        on_store: Callable[[str], None] = lambda _: None,
        on_fault: Callable[[BaseException], None] = lambda _: None,
    ):
        self._store = store
        self._settings = settings
        self._worker = worker
        self._on_refused = on_refused
        self._on_store = on_store
        """Told why the store does not answer, and "" when it does again."""
        self._on_fault = on_fault
        self._trouble: str | None = None
        self.current: Policy | None = None
        self.version = FROM_FILE
        self.checked = 0.0
        self.workers_alive = max(1, settings.workers)
        self._digest = ""
        """Of the document in force: a store that lost its data gives version numbers out again."""
        self._refused: tuple[int, str] | None = None
        self._refused_digest = ""

    @property
    def error(self) -> str:
        """Why the current version is not in force here, or ""."""
        return self._refused[1] if self._refused else ""

    async def follow(self) -> None:
        """Report, look, load; once a second and whenever the store tells of a change. Runs until cancelled."""
        files = self._settings.limit_files
        while True:
            try:
                if files is not None:
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
        if standing.current is not None and (standing.current, standing.digest) != (self.version, self._digest):
            await self._load(standing.current, standing.digest)
            # At once, so that whoever pushed sees who follows and who does not.
            await self._store.report(self._report())
        elif standing.current is not None:
            self._refused = None
        self.checked = time.time()

    async def _load(self, version: int, digest: str) -> None:
        if self._refused and self._refused_digest == digest:
            return
        self._refused_digest = digest
        try:
            text, info = await self._store.document(version)
            if newer_than_this(info.needs):
                self._refuse(version, f"version {version} needs release {info.needs}, this is {__version__}")
                return
            policy = await asyncio.to_thread(self._compile, text, f"version {version}")
        except UnknownVersion:
            return
        except PolicyError as e:
            self._refuse(version, str(e))
            return
        self._swap(policy, version)
        self._digest = digest

    def _refuse(self, version: int, why: str) -> None:
        if self._refused != (version, why):
            self._refused = (version, why)
            self._on_refused(version, why)

    async def _load_file(self) -> None:
        """Start without the store where the policy in the file allows it."""
        if self.current is not None or self._settings.policy_file is None:
            return
        path = self._settings.policy_file
        text = await asyncio.to_thread(_read, path)
        try:
            policy = self._compile(text, path)
        except PolicyError as e:
            self._on_refused(FROM_FILE, str(e))
            return
        if policy.store_loss.start == "serve":
            self._swap(policy, FROM_FILE)

    async def _follow_rule_files(self, path: str) -> None:
        """Serve a folder's limits instead of the store's policy; a bad set leaves the old rules in force."""
        directory = RuleDirectory(Path(path), self._settings.ignore_dot_files)
        seen: Signature | None = None
        while True:
            signature = await asyncio.to_thread(directory.signature)
            if signature != seen:
                seen = signature
                try:
                    limits = compile_rule_files(await asyncio.to_thread(directory.read))
                    self._swap(dataclasses.replace(compile_policy(""), limits=limits), self.version + 1)
                except PolicyError as e:
                    self._refuse(self.version + 1, str(e))
                except OSError as e:
                    seen = None
                    self._refuse(self.version + 1, f"{e.filename}: {e.strerror}")
            with contextlib.suppress(StoreUnavailable):
                self.workers_alive = max(1, (await self._store.report(self._report())).workers)
                self.checked = time.time()
            await asyncio.sleep(self._settings.check_interval)

    def _compile(self, text: str, file: str) -> Policy:
        policy = compile_policy(text, file=file, upstreams=self._settings.upstreams, max_body=self._settings.max_body)
        return with_probe(policy, self._settings.probe_key)

    def _swap(self, policy: Policy, version: int) -> None:
        self.current, self.version, self._refused = policy, version, None

    def _report(self) -> WorkerReport:
        return WorkerReport(
            worker=self._worker,
            pid=os.getpid(),
            host=socket.gethostname(),
            version=self.version,
            checked=self.checked or time.time(),
            error=self.error,
            release=__version__,
        )


def with_probe(policy: Policy, sha256: str | None) -> Policy:
    """Add the key of `seawall up`'s own readiness request, so that it uses up nobody's limit."""
    if sha256 is None:
        return policy
    tenant = Tenant(PROBE_TENANT, policy.classes[-1])
    digest = bytes.fromhex(sha256)
    keys: dict[bytes, Any] = {**policy.callers.keys, digest: Key(PROBE_TENANT, tenant, digest)}
    return dataclasses.replace(policy, callers=dataclasses.replace(policy.callers, keys=keys))


def _read(path: str) -> str:
    with open(path, encoding="utf-8") as file:  # noqa: PTH123 - a str path from the settings
        return file.read()
