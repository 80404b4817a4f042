"""Files before workers: a policy is used when Envoy has its pools and routes, and not before.

The supervisor writes the files that Envoy watches, waits until Envoy has taken them, and then says so in `ready.json`
beside them: the digests of all policies whose pools and routes are there, each with a word. Workers look there before
they use a policy. See docs/decisions/0009.
"""

import asyncio
import json
import time
from collections.abc import Callable, Mapping
from enum import StrEnum
from pathlib import Path

from seawall.policy.compile import descriptor_keys
from seawall.policy.compiled import Policy
from seawall.policy.mistake import Mistake, PolicyError

READY_FILE = "ready.json"
PATIENCE = 15.0
"""Seconds that a worker waits for the supervisor, which waits at most 12 for Envoy."""
POLL = 0.02


class Taken(StrEnum):
    """What the supervisor knows of a policy's files."""

    TAKEN = "taken"
    """Envoy has said that it has them."""
    WRITTEN = "written"
    """They are there, and Envoy has had time; nobody asked it."""
    LATE = "late"
    """Envoy did not say in time that it has them."""
    REFUSED = "refused"
    """Envoy refused them; those before are in their place again."""


def envoy_part(policy: Policy, *beside: Policy) -> object:
    """Everything of a policy, and of others beside it, that Envoy's files are made of: where it is equal, they are."""
    hosts = {name: profile.hosts for name, profile in policy.profiles.items()}
    return dict(policy.pools), policy.retries, descriptor_keys(policy, *beside), hosts


def read_ready(directory: str) -> dict[str, str]:
    """Read the word on each digest; nothing where nobody has written yet."""
    try:
        said = json.loads((Path(directory) / READY_FILE).read_text("utf-8"))
        return {str(digest): str(entry["files"]) for digest, entry in said["policies"].items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}


def ready_versions(directory: str) -> list[tuple[int, str]]:
    """Numbers and digests of the policies whose files are there, newest first."""
    try:
        said = json.loads((Path(directory) / READY_FILE).read_text("utf-8"))["policies"]
        found = [(int(e["version"]), str(d)) for d, e in said.items() if e["files"] in {Taken.TAKEN, Taken.WRITTEN}]
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return []
    return sorted(((number, digest) for number, digest in found if number), reverse=True)


class EnvoyReady:
    """A worker's look at `ready.json`. `on_unsure` is told why a policy is used although Envoy may not have it."""

    def __init__(self, directory: str | None, on_unsure: Callable[[str], None], patience: float = PATIENCE):
        self._directory = directory
        self._on_unsure = on_unsure
        self._patience = patience

    async def meanwhile(self, digest: str) -> list[tuple[int, str]]:
        """Versions that a worker without a policy can begin with, while Envoy has not the pools of the current one."""
        if self._directory is None:
            return []
        found = await asyncio.to_thread(ready_versions, self._directory)
        return [] if any(known == digest for _, known in found) else found

    async def wait(self, policy: Policy, digest: str, before: Policy | None, file: str) -> None:
        """Return when the policy may be used; raises PolicyError when Envoy refused it and there is one to stay on.

        Waits for nothing without a directory, or where `before`, the policy in use, has the same pools and routes.
        """
        if self._directory is None or (before is not None and envoy_part(before) == envoy_part(policy)):
            return
        ends = time.monotonic() + self._patience
        while True:
            said: Mapping[str, str] = await asyncio.to_thread(read_ready, self._directory)
            match said.get(digest):
                case Taken.TAKEN | Taken.WRITTEN:
                    return
                case Taken.LATE:
                    self._on_unsure("Envoy did not say in time that it has its pools and routes")
                    return
                case Taken.REFUSED:
                    why = "Envoy refused the pools or routes of this policy; the supervisor's log says more"
                    if before is not None:
                        raise PolicyError([Mistake(file, 1, 1, "", None, why)])
                    self._on_unsure(why)
                    return
            if time.monotonic() > ends:
                self._on_unsure(f"the supervisor has not written its pools and routes within {self._patience:.0f} s")
                return
            await asyncio.sleep(POLL)
