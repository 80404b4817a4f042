"""What a route of Envoy says about its requests, held against the policy.

The operator writes it into Envoy's configuration, as `context_extensions` of ext_authz and `grpc_initial_metadata` of
ext_proc. A client can write neither.
"""

from collections.abc import Sequence

from seawall.policy import notation
from seawall.policy.compiled import Policy, Profile

PREFIX = "seawall."
KEYS = ("profile", "class", "body_max", "unknown_paths")
UNKNOWN = "unknown"
"""Stands for a key that is none, where keys are counted."""
OWN = Profile()
"""Of a route that says nothing: the policy's own settings."""

Said = tuple[tuple[str, str], ...]
"""Keys that begin with PREFIX, and their values, as Envoy sent them."""
Wrong = tuple[str, str]
"""A key of KEYS or UNKNOWN, and what is wrong with what was said."""


def route_of(policy: Policy, said: Said, max_body: int) -> tuple[Profile, Sequence[Wrong]]:
    """Settings of a route, and what of them is passed over: there the policy's own count, as on any other route.

    What stands beside `seawall.profile` wins over what the profile says. `max_body` in bytes: what Envoy lets through.
    """
    wrong: list[Wrong] = []
    given: dict[str, str] = {}
    for name, value in said:
        key = name.removeprefix(PREFIX)
        if key in KEYS:
            given[key] = value
        else:
            wrong.append((UNKNOWN, f"'{name[:60]}' is no setting of a route: {', '.join(PREFIX + k for k in KEYS)}"))
    base = OWN
    if (text := given.get("profile")) is not None:
        base = policy.profiles.get(text, OWN)
        if text not in policy.profiles:
            wrong.append(("profile", f"the policy has no profile '{text[:60]}'"))
    class_, body_max, unknown_paths = base.class_, base.body_max, base.unknown_paths
    if (text := given.get("class")) is not None:
        if text in policy.classes:
            class_ = text
        else:
            wrong.append(("class", f"the policy has no class '{text[:60]}'"))
    if (text := given.get("body_max")) is not None:
        size = _size(text)
        if size is None:
            wrong.append(("body_max", f"'{text[:60]}' is not {notation.SIZE}"))
        elif size > max_body:
            wrong.append(("body_max", f"'{text[:60]}' is more than Envoy lets through (SEAWALL_MAX_BODY)"))
        else:
            body_max = size
    match given.get("unknown_paths"):
        case None:
            pass
        case "deny":
            unknown_paths = "deny"
        case "pass":
            unknown_paths = "pass"
        case other:
            wrong.append(("unknown_paths", f"'{other[:60]}' is neither deny nor pass"))
    return Profile(class_, body_max, unknown_paths), wrong


def _size(text: str) -> int | None:
    try:
        return notation.size(text) or None
    except ValueError:
        return None
