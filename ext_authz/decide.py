"""The prefilter's order: user agent, size of the headers, path, key. Pure."""

from collections.abc import Mapping
from dataclasses import replace

from seawall.caller.keys import NONE_ISSUED, Caller, Issued
from seawall.decision import Reason, Refusal
from seawall.llm.protocols import endpoint_of
from seawall.mesh.names import CONTROL_PREFIX, PRIORITY_HEADER
from seawall.policy.compiled import Policy, Profile
from seawall.policy.route import OWN


def decide(
    policy: Policy,
    *,
    path: str,
    headers: Mapping[str, str],
    size: int,
    now: float,
    issued: Issued = NONE_ISSUED,
    route: Profile = OWN,
) -> Caller | Refusal:
    """Decide about a request by its headers.

    `size` is an upper bound of the headers' bytes (the whole message's), so that they are added up only when it matters;
    `now` is unix seconds; `issued` are the keys of the store; `route` is what the request's route has in place of the
    policy's own.
    """
    prefilter = policy.prefilter
    if prefilter.agents.denied(headers.get("user-agent")):
        return Refusal(Reason.USER_AGENT, "This client is not allowed here.", "user-agent")
    if size > prefilter.headers_max and (too_large := _largest_header(headers, prefilter.headers_max)):
        return Refusal(
            Reason.HEADERS,
            f"The request's headers are larger than {prefilter.headers_max} bytes; the largest is '{too_large}'.",
            too_large,
        )
    if (route.unknown_paths or prefilter.unknown_paths) == "deny" and endpoint_of(path) is None:
        return Refusal(Reason.UNKNOWN_PATH, "There is no such path here.")
    caller = policy.callers.identify(headers, now, issued)
    if route.class_ is not None and isinstance(caller, Caller):
        return replace(caller, class_=route.class_)
    return caller


def _largest_header(headers: Mapping[str, str], allowed: int) -> str | None:
    sizes = {name: len(name) + len(value.encode("utf-8", "surrogatepass")) for name, value in headers.items()}
    if sum(sizes.values()) <= allowed:
        return None
    return max(sizes, key=lambda name: sizes[name])[:100]


def headers_to_remove(policy: Policy, headers: Mapping[str, str]) -> list[str]:
    """Find headers that no engine may see.

    What only the gate may set is taken off even where Envoy was not told to; keys are for the gate and end here.
    """
    keys = [name for name in policy.callers.key_headers if name in headers]
    names = "\n".join(headers)
    if CONTROL_PREFIX not in names and PRIORITY_HEADER not in names:
        return keys
    return [*keys, *(name for name in headers if name.startswith(CONTROL_PREFIX) or name == PRIORITY_HEADER)]
