"""What one supervisor does with the policy for all its workers.

It seeds an empty store, takes in the inbox, and keeps the files that Envoy watches.
"""

import asyncio
import os
import socket
from collections.abc import Awaitable, Callable

from seawall.policy.compile import compile_policy, digest_of
from seawall.policy.compiled import Policy
from seawall.policy.load import Loaded, load
from seawall.policy.mistake import Mistake, PolicyError
from seawall.serve.envoy_files import EnvoyFiles, Kept
from seawall.serve.policy_text import read_policy
from seawall.serve.settings import Settings
from seawall.store import open_control
from seawall.store.contract import Conflict, ControlPath, StoreUnavailable, UnknownVersion
from seawall.telemetry.logfmt import Log

CLAIM_LEASE = 10.0
"""Seconds that a supervisor has for one document of the inbox."""


class Chores:
    """Runs beside the workers; every chore may be done by any supervisor at any time."""

    def __init__(self, settings: Settings, log: Log):
        self._settings = settings
        self._log = log
        self._name = f"{socket.gethostname()}-{os.getpid()}"
        directory = settings.envoy_dir
        self._envoy = EnvoyFiles(directory, settings.envoy_admin, settings.engine_ca, log) if directory else None
        self._seen: tuple[str, str] | None = None
        """Digests of the policy, and of the canary beside it, that Envoy's files were looked at for last."""
        self._troubles: dict[str, str] = {}
        self._last: tuple[int, str, str] | None = None
        """Version, text and digest that were current last."""

    async def run(self) -> None:
        """Do the chores until cancelled."""
        if self._settings.store == "memory":
            await self._render_file()
            return
        self._control = open_control(self._settings.store)
        await self._control.start()
        while True:
            for chore in (self._seed, self._render_current, self._take_inbox):
                await self._do(chore, self._control)
            try:
                await self._control.wait_change(self._settings.check_interval)
            except StoreUnavailable:
                if self._seen is None:
                    await self._render_file()
                await asyncio.sleep(self._settings.check_interval)

    async def _do(self, chore: Callable[[ControlPath], Awaitable[None]], control: ControlPath) -> None:
        """Do one chore; what it fails of is logged once, and neither ends the others nor the next try."""
        name = chore.__name__.strip("_")
        try:
            await chore(control)
        except Exception as e:
            trouble = str(e).splitlines()[0] if str(e) else type(e).__name__
            if self._troubles.get(name) != trouble:
                self._log("warn", "a chore failed, it is tried again", chore=name, error=trouble)
            self._troubles[name] = trouble
        else:
            self._troubles.pop(name, None)

    async def close(self) -> None:
        """Close the connection to the store."""
        control = getattr(self, "_control", None)
        if control is not None:
            await control.close()

    async def _seed(self, control: ControlPath) -> None:
        """Give a store without a policy the one in our file."""
        version, digest = await control.current_digest()
        if version is not None:
            if self._last is None or self._last[2] != digest:
                await self._remember(control, version)
            return
        path = self._settings.policy_file
        if self._last is not None:
            # The store has lost what it held: what it held last is true, not the file that we were started with.
            text, reason = self._last[1], f"the store was empty, version {self._last[0]} written back"
        elif path is not None:
            text, reason = await asyncio.to_thread(read_policy, path), f"seeded from {path}"
        else:
            return
        needs = self._load(text, path or "store").needs
        try:
            await control.push(
                text, digest=digest_of(text), author=self._name, reason=reason, needs=needs, if_current=0
            )
        except Conflict:
            return
        self._log("info", "policy seeded", why=reason)

    async def _remember(self, control: ControlPath, version: int) -> None:
        text, info = await control.document(version)
        path = self._settings.policy_file
        if self._last is None and path is not None:
            ours = await asyncio.to_thread(read_policy, path)
            if ours != text:
                self._log("warn", "the store has a policy already, the file is not used", version=version, file=path)
        self._last = (version, text, info.digest)

    async def _take_inbox(self, control: ControlPath) -> None:
        text = await control.claim_inbox(self._name, CLAIM_LEASE)
        if text is None:
            return
        try:
            loaded = await asyncio.to_thread(self._load_pushed, text, "inbox")
        except PolicyError as e:
            await control.settle_inbox(self._name, text, str(e), None)
            self._log("error", "inbox refused", error=str(e).splitlines()[0])
            return
        push = {"digest": digest_of(text), "author": "inbox", "reason": "SET by hand", "needs": loaded.needs}
        version = await control.settle_inbox(self._name, text, None, push)
        self._log("info", "inbox taken", version=version)

    def _load_pushed(self, text: str, file: str) -> Loaded:
        loaded = self._load(text, file)
        if loaded.root is None:
            # Valid, and it would lock everybody out: most likely a pipe whose first command failed.
            raise PolicyError([Mistake(file, 1, 1, "", None, "the document is empty")])
        return loaded

    def _load(self, text: str, file: str) -> Loaded:
        return load(text, file=file, max_body=self._settings.max_body)

    def _compile(self, text: str, file: str) -> Policy:
        return compile_policy(text, file=file, upstreams=self._settings.upstreams, max_body=self._settings.max_body)

    async def _render_current(self, control: ControlPath) -> None:
        if self._envoy is None or self._last is None:
            return
        version, text, digest = self._last
        canary = await control.canary()
        wanted = (digest, canary.digest if canary else "")
        if wanted != self._seen:
            if self._seen is None:
                self._envoy.keep(await self._kept_before(self._envoy, control, digest))
            try:
                policy = await asyncio.to_thread(self._compile, text, f"version {version}")
            except PolicyError:
                # Workers stay on the last good one, so Envoy does.
                self._seen = wanted
                return
            beside = [] if canary is None else await self._beside(control, canary.version)
            await self._envoy.bring(version, digest, policy, beside)
            self._seen = wanted
        if self._envoy.due():
            await self._envoy.expire({report.version for report in await control.workers()})

    async def _kept_before(self, envoy: EnvoyFiles, control: ControlPath, current: str) -> list[Kept]:
        """Compile again what a supervisor before this one kept: requests of those policies may still be on their way."""
        found = []
        for version, digest, until in await asyncio.to_thread(envoy.kept_before):
            if digest == current:
                continue
            try:
                text, info = await control.document(version)
                policy = await asyncio.to_thread(self._compile, text, f"version {version}")
            except (UnknownVersion, PolicyError):
                continue
            if info.digest == digest:
                found.append(Kept(version, digest, policy, until))
        return sorted(found, key=lambda kept: -(kept.until or 0))

    async def _beside(self, control: ControlPath, version: int) -> list[Policy]:
        """Compile a canary: of it Envoy needs the descriptors of its limits, no more; what is shared waits."""
        try:
            text, _ = await control.document(version)
            return [await asyncio.to_thread(self._compile, text, f"version {version}")]
        except (PolicyError, UnknownVersion):
            return []

    async def _render_file(self) -> None:
        path = self._settings.policy_file
        if path is None or self._envoy is None:
            return
        text = await asyncio.to_thread(read_policy, path)
        await self._envoy.bring(0, digest_of(text), await asyncio.to_thread(self._compile, text, path))
        self._seen = (digest_of(text), "")
