"""The files that Envoy watches, kept by the supervisor: written before workers use a policy, removed long after.

A policy that is not current any more keeps its pools and routes for a while, since requests that began under it may
still wait for a slot, and a worker may not have seen the new one yet. What is with an engine already needs neither:
Envoy lets it end although its cluster has gone.
"""

import asyncio
import json
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from seawall.policy.compile import descriptor_keys
from seawall.policy.compiled import Policy, Pool
from seawall.serve.envoy_admin import EnvoyAdmin, Loaded, NoEnvoy
from seawall.serve.envoy_ready import READY_FILE, Taken, envoy_part
from seawall.telemetry.logfmt import Log

KEEP = 600.0
"""Seconds that pools of a policy stay after it: more than the longest body and the longest wait for a slot together, and
as long as workers keep a policy."""
MOST_KEPT = 32
"""Policies whose pools are kept beside the current ones; the oldest go first."""
ENVOY_TIME = 6.0
"""Seconds that Envoy has to take each file: a new pool is not in force before each engine was looked at once."""
SETTLE = 0.5
"""Seconds given to an Envoy that can't be asked."""
SPREAD = 0.05
"""Seconds in which what Envoy's main thread has reaches all its threads."""


@dataclass(frozen=True, slots=True)
class Kept:
    """A policy whose pools are in the files. `until` is unix seconds, None while it is current."""

    version: int
    digest: str
    policy: Policy
    until: float | None = None


class EnvoyFiles:
    """The files of one directory."""

    def __init__(self, directory: str, admin: str | None, ca_file: str, log: Log, keep: float = KEEP):
        self._directory = Path(directory)
        self._admin = EnvoyAdmin(admin) if admin else None
        self._ca_file = ca_file
        self._log = log
        self._keep = keep
        self._current: Kept | None = None
        self._beside: Sequence[Policy] = ()
        """Policies beside the current one (a canary): Envoy sends descriptors for their limits too."""
        self._part: object = None
        """What the files were made of."""
        self._older: list[Kept] = []
        """Newest first."""
        self._words: dict[str, Taken] = {}

    @property
    def digest(self) -> str | None:
        """Of the policy that the files were written for last."""
        return self._current.digest if self._current else None

    def kept_before(self) -> list[tuple[int, str, float]]:
        """Version, digest and end of the policies whose pools a supervisor before this one left in the files."""
        try:
            said = json.loads((self._directory / READY_FILE).read_text("utf-8"))["policies"]
            found = [
                (int(e["version"]), str(digest), float(e["until"] or time.time() + self._keep))
                for digest, e in said.items()
                if e["files"] != Taken.REFUSED
            ]
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return []
        return [entry for entry in found if entry[0] and entry[2] > time.time()]

    def keep(self, kept: Iterable[Kept]) -> None:
        """Take over what `kept_before` told, compiled again."""
        self._older = [*kept, *self._older]

    async def bring(self, version: int, digest: str, policy: Policy, beside: Sequence[Policy] = ()) -> Taken:
        """Make Envoy ready for a policy, then let workers know. `beside`: policies whose limits count too."""
        before, older = self._current, self._older
        ends = time.time() + self._keep
        if before is not None and before.digest != digest:
            older = [replace(before, until=ends), *older]
        older = [kept for kept in older if kept.digest != digest][:MOST_KEPT]
        part = envoy_part(policy, *beside)
        same = before is not None and self._part == part
        word = self._words.get(before.digest, Taken.WRITTEN) if before and same else None
        if word is None:
            word = await self._put(with_older(policy, older), beside)
        if word is Taken.REFUSED and before is not None:
            # Workers stay on the one before, and so do the files.
            self._words[digest] = word
            await self._tell([before, *self._older, Kept(version, digest, policy, ends)])
            return word
        self._current, self._older = Kept(version, digest, policy), older
        self._beside, self._part = beside, part
        self._words[digest] = word
        await self._tell([self._current, *self._older])
        if not same:
            level = "info" if word in {Taken.TAKEN, Taken.WRITTEN} else "warn"
            self._log(level, "envoy files written", version=version, envoy=word.value, kept=len(older))
        return word

    def due(self) -> bool:
        """Say whether any older policy has had its time."""
        return any(kept.until is not None and kept.until < time.time() for kept in self._older)

    async def expire(self, in_use: Collection[int]) -> None:
        """Remove what only policies past their time have, but for versions that a living worker still uses."""
        if self._current is None:
            return
        now = time.time()
        stay = [k for k in self._older if k.until is None or k.until >= now or k.version in in_use]
        if len(stay) == len(self._older):
            return
        gone = sorted(kept.version for kept in self._older if kept not in stay)
        self._older = stay
        # No worker may begin to use what is about to go; routes go before the pools they lead to.
        await self._tell([self._current, *stay])
        await self._put(with_older(self._current.policy, stay), self._beside, removing=True)
        self._log("info", "envoy files without the pools of older policies", versions=",".join(map(str, gone)))

    async def _put(self, policy: Policy, beside: Sequence[Policy] = (), *, removing: bool = False) -> Taken:
        """Move files into place, clusters first (routes first where things go), each once Envoy has the one before."""
        from seawall.mesh.bootstrap import CDS_FILE, RDS_FILE

        new = await asyncio.to_thread(rendered, policy, self._ca_file, beside)
        old = await asyncio.to_thread(written, self._directory, new)
        words = [Taken.WRITTEN]
        for name in (RDS_FILE, CDS_FILE) if removing else (CDS_FILE, RDS_FILE):
            if old[name] == new[name]:
                continue
            before = await self._loaded()
            await asyncio.to_thread(move_into_place, self._directory / name, new[name])
            if not old[name]:
                # Envoy does not start without the file, so there is none that could have it.
                continue
            words.append(await self._taken(name, new[name], before))
            if words[-1] is Taken.REFUSED:
                self._log("error", "envoy refused a file, the one before is put back", file=name)
                for changed in new:
                    if old[changed]:
                        await asyncio.to_thread(move_into_place, self._directory / changed, old[changed])
                return Taken.REFUSED
        return Taken.LATE if Taken.LATE in words else words[-1]

    async def _loaded(self) -> Loaded | None:
        if self._admin is None:
            return None
        try:
            return await self._admin.loaded()
        except NoEnvoy:
            return None

    async def _taken(self, name: str, text: str, before: Loaded | None) -> Taken:
        """Wait until Envoy has taken a file; where there is none to ask, for as long as one needs that is there."""
        from seawall.mesh.bootstrap import CDS_FILE, version_of

        if self._admin is not None and before is not None:
            version = version_of(text)
            try:
                if name == CDS_FILE:
                    word = await self._admin.until(
                        lambda now: now.clusters == version and not now.warming,
                        lambda now: now.clusters_refused > before.clusters_refused,
                        ENVOY_TIME,
                    )
                else:
                    word = await self._admin.until(
                        lambda now: now.routes == version,
                        lambda now: now.routes_refused > before.routes_refused,
                        ENVOY_TIME,
                    )
            except NoEnvoy:
                return Taken.WRITTEN
            await asyncio.sleep(SPREAD)
            return word
        await asyncio.sleep(SETTLE)
        return Taken.WRITTEN

    async def _tell(self, policies: Iterable[Kept]) -> None:
        """Write `ready.json`."""
        entries = {
            kept.digest: {
                "version": kept.version,
                "files": self._words.get(kept.digest, Taken.WRITTEN).value,
                "until": kept.until,
            }
            for kept in policies
        }
        text = json.dumps({"policies": entries}, indent=1) + "\n"
        await asyncio.to_thread(move_into_place, self._directory / READY_FILE, text)
        self._words = {digest: word for digest, word in self._words.items() if digest in entries}


def with_older(policy: Policy, older: Iterable[Kept]) -> Policy:
    """Add pools that only older policies have; of several with the same name the newest counts."""
    pools: dict[str, Pool] = {}
    for kept in reversed(list(older)):
        pools.update(kept.policy.pools)
    return replace(policy, pools={**pools, **policy.pools})


def rendered(policy: Policy, ca_file: str, beside: Sequence[Policy] = ()) -> dict[str, str]:
    """Text of each file that Envoy watches."""
    # Imported where it is needed: it takes 0.4 s.
    from seawall.mesh.bootstrap import render_dynamic

    return render_dynamic(policy, descriptor_keys(policy, *beside), ca_file=ca_file)


def written(directory: Path, names: Iterable[str]) -> Mapping[str, str]:
    """Text of files as they are; "" where one is missing."""
    found = {name: directory / name for name in names}
    return {name: path.read_text("utf-8") if path.is_file() else "" for name, path in found.items()}


def move_into_place(path: Path, text: str) -> None:
    """Replace a file by a rename: Envoy notices nothing else, and nobody reads half of it."""
    new = path.with_name(f".{path.name}.new")
    new.write_text(text, "utf-8")
    new.replace(path)


def write_dynamic(directory: str, policy: Policy, ca_file: str) -> None:
    """Write the files for an Envoy that is not running yet: clusters, routes, and the word that they are there."""
    for name, text in rendered(policy, ca_file).items():
        move_into_place(Path(directory) / name, text)
    entry = {"version": 0, "files": Taken.WRITTEN.value, "until": None}
    move_into_place(Path(directory) / READY_FILE, json.dumps({"policies": {policy.digest: entry}}) + "\n")
