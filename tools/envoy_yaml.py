"""Write envoy/envoy.yaml: the generated configuration once more, for people, with comments.

python tools/envoy_yaml.py [TARGET]      `-` prints it
"""

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from seawall.mesh.bootstrap import bootstrap
from seawall.mesh.message import Json
from seawall.mesh.settings import MeshSettings
from seawall.policy.compile import compile_policy, descriptor_keys

ROOT = Path(__file__).resolve().parent.parent
WIDTH = 120
POLICY = """
limits:
  - domain: llm
    descriptors:
      - {key: tenant, rate_limit: {unit: minute, requests_per_unit: 600}}
"""
UPSTREAMS = (("http://127.0.0.1:8000", "vllm"), ("http://127.0.0.1:8001", "vllm"))
SOCKETS = ("/run/seawall/w0.sock", "/run/seawall/w1.sock")

HEAD = """\
# Envoy before an LLM gate: ext_authz -> ratelimit -> ext_proc -> router -> pools of engines.
#
#   envoy -c envoy.yaml --drain-time-s 60
#
# Change the addresses: listener 127.0.0.1:10000, admin 127.0.0.1:9901 (keep it on loopback), engines 127.0.0.1:8000 and
# 8001, gate workers /run/seawall/w0.sock and w1.sock. For a policy of yours `seawall envoy-config` writes the same file
# with its pools. README.md beside this file says which part belongs to which service.
#
# Written by tools/envoy_yaml.py and held equal to the generated configuration by a test; Envoy 1.40 (see README.md for
# 1.39). YAML traps, if you edit it: no bare y, n, yes, no, on, off; quote numbers that are meant as text; durations are
# seconds (0.5s, 60s); merge keys (<<) do not work.
"""

COMMENTS: tuple[tuple[str, str], ...] = (
    (r"^overload_manager$", "Surplus connections are closed on accept."),
    (r"\.per_connection_buffer_limit_bytes$", "The largest body that ext_proc gets: SEAWALL_MAX_BODY. 413 above it."),
    (
        r"\.routes\[default\]$",
        "One route for each pool, by a header that only ext_proc sets: clients' x-seawall-* are taken off below.",
    ),
    (r"\.routes\[default\]\.route\.timeout$", "The default of 15s would cut long answers."),
    (r"\.routes\[default\]\.route\.retry_policy$", "Behind all filters: however many attempts, one charge, one slot."),
    (
        r"\.routes\[no_pool\]$",
        (
            "Every request is here until ext_proc has chosen, and what is never given a pool ends here with a 503. The\n"
            "cluster is empty but must exist: ratelimit isn't called for a route without one."
        ),
    ),
    (
        r"\.virtual_hosts\[all\]\.typed_per_filter_config$",
        (
            "What Envoy charges: one entry for each key path in the policy's `limits` that it can fill from what\n"
            "ext_authz said (tenant, class, key, region) or from the address. ext_proc charges tokens and models."
        ),
    ),
    (r"\.http_filters\[envoy\.filters\.http\.ext_authz\]$", "service: ext_authz. Who is calling? By headers only."),
    (r"ext_authz\]\.typed_config\.grpc_service\.retry_policy$", "Counts here; inside envoy_grpc it does nothing."),
    (r"ext_authz\]\.typed_config\.status_on_error$", "When no worker answers. The default, 403, is never retried."),
    (
        r"\.http_filters\[envoy\.filters\.http\.ratelimit\]$",
        "service: ratelimit. Requests of a caller, by descriptors.",
    ),
    (r"http\.ratelimit\]\.typed_config\.timeout$", "The default is 20ms."),
    (r"http\.ratelimit\]\.typed_config\.failure_mode_deny$", "A lost store is the service's to judge (store_loss)."),
    (r"http\.ratelimit\]\.typed_config\.enable_retry_after_header$", "Since 1.40; delete the line for 1.39."),
    (
        r"\.http_filters\[envoy\.filters\.http\.ext_proc\]$",
        "service: ext_proc. Bodies, slots, streams. No timeout at grpc_service: its stream lives as long as the request.",
    ),
    (
        r"ext_proc\]\.typed_config\.processing_mode$",
        (
            "The answer to the headers switches on the rest, for LLM paths. Asking for response headers here would keep\n"
            "Envoy's own 400 and 431 from reaching the client."
        ),
    ),
    (r"ext_proc\]\.typed_config\.max_message_timeout$", "The longest wait in the queue: SEAWALL_MAX_HOLD."),
    (r"ext_proc\]\.typed_config\.metadata_options$", "Other namespaces are dropped without a word."),
    (r"\.stream_idle_timeout$", "Counts in the queue and between two tokens: above SEAWALL_MAX_HOLD."),
    (r"\.request_timeout$", "Until the request is complete; a wait in the queue does not count."),
    (r"\.early_header_mutation_extensions$", "Before the first route is chosen."),
    (
        r"\.local_reply_config$",
        (
            "Envoy's own answers in the error envelope of the path's protocol. The first mapper leaves the answers of the\n"
            "services as they are; then each kind of failure, for Anthropic's paths and for all others."
        ),
    ),
    (r"\.clusters\[gate\]$", "The gate's workers, all three services on each."),
    (r"\.clusters\[gate\]\.common_lb_config$", "No healthy worker: fail at once."),
    (r"\.clusters\[gate\]\.circuit_breakers$", "One stream for each live request; the defaults are 1024 and 3."),
    (r"\.clusters\[gate\]\.health_checks$", "NOT_SERVING takes a worker out at the first look, so it drains unseen."),
    (r"\.clusters\[no_pool\]$", "No endpoints, on purpose."),
    (r"\.clusters\[pool_default\]$", "A pool of engines; the gate says how many requests may be in it."),
)
"""By the path of what they stand above: keys joined by dots, list items by their name."""


def configuration() -> Json:
    """Give what the file says."""
    policy = compile_policy(POLICY, upstreams=UPSTREAMS)
    return bootstrap(MeshSettings(sockets=SOCKETS), policy, descriptors=descriptor_keys(policy))


def render(node: Json) -> tuple[str, set[str]]:
    """Write as YAML; also gives the paths of the comments that found their place."""
    used: set[str] = set()
    return HEAD + "\n".join(_mapping(node, "", 0, used)) + "\n", used


def _mapping(node: Json, path: str, indent: int, used: set[str]) -> Iterator[str]:
    for key, value in node.items():
        here = f"{path}.{key}" if path else key
        yield from _comment(here, indent, used)
        yield from _entry(f"{_scalar(key)}:", value, here, indent, used)


def _entry(head: str, value: object, path: str, indent: int, used: set[str]) -> Iterator[str]:
    flow = _flow(value)
    short = indent + len(head) + 1 + len(flow) <= WIDTH
    if (short or not isinstance(value, dict | list)) and not _wants_comment(path, value):
        yield " " * indent + f"{head} {flow}"
        return
    yield " " * indent + head
    if isinstance(value, dict):
        yield from _mapping(value, path, indent + 2, used)
    elif isinstance(value, list):
        yield from _items(value, path, indent, used)


def _items(node: list[object], path: str, indent: int, used: set[str]) -> Iterator[str]:
    for index, item in enumerate(node):
        here = f"{path}[{item['name'] if isinstance(item, dict) and 'name' in item else index}]"
        yield from _comment(here, indent, used)
        flow = _flow(item)
        if not isinstance(item, dict) or (indent + 2 + len(flow) <= WIDTH and not _wants_comment(here, item)):
            yield " " * indent + f"- {flow}"
            continue
        lines = list(_mapping(item, here, indent + 2, used))
        yield " " * indent + "- " + lines[0].lstrip()
        yield from lines[1:]


def _wants_comment(path: str, value: object) -> bool:
    """Say whether something below has a comment, and so can't stand in one line."""
    return any(re.search(pattern, below) for below in _below(value, path) for pattern, _ in COMMENTS)


def _below(value: object, path: str) -> Iterator[str]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield f"{path}.{key}"
            yield from _below(inner, f"{path}.{key}")
    elif isinstance(value, list):
        for index, item in enumerate(value):
            here = f"{path}[{item['name'] if isinstance(item, dict) and 'name' in item else index}]"
            yield here
            yield from _below(item, here)


def _comment(path: str, indent: int, used: set[str]) -> Iterator[str]:
    for pattern, text in COMMENTS:
        if re.search(pattern, path):
            used.add(pattern)
            yield from (" " * indent + f"# {line}" for line in text.split("\n"))


def _flow(value: object) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_scalar(k)}: {_flow(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(_flow(v) for v in value) + "]"
    return _scalar(value)


def _scalar(value: object) -> str:
    """Write a string plain only where no YAML reader could take it for anything else."""
    if isinstance(value, str):
        plain = re.fullmatch(r"[A-Za-z_/][A-Za-z0-9_./-]*|[0-9]+(\.[0-9]+)?s", value)
        words = {"y", "n", "yes", "no", "on", "off", "true", "false", "null"}
        if plain and value.lower() not in words:
            return value
        return "'" + value.replace("'", "''") + "'" if '"' in value else json.dumps(value, ensure_ascii=False)
    return json.dumps(value)


if __name__ == "__main__":
    text, _ = render(configuration())
    target = sys.argv[1] if len(sys.argv) > 1 else str(ROOT / "envoy" / "envoy.yaml")
    if target == "-":
        print(text, end="")
    else:
        Path(target).write_text(text, "utf-8")
