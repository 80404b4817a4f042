"""A policy and a chat request of the size that a gate sees: what own code is measured with, and what was recorded with."""

import hashlib
import json
from typing import Any

import yaml

_NAMES = ("amber", "birch", "cedar", "delta", "ember", "fjord", "grove", "haven", "iris", "juniper", "kelp", "larch")
TENANTS = tuple(f"team-{name}" for name in _NAMES)
CLASSES = ("vip", "standard", "batch")
TENANT = TENANTS[7]
"""Who sends the request; neither the first nor the last of them."""
CLASS = CLASSES[TENANTS.index(TENANT) % len(CLASSES)]
MODEL = "llama-3-70b"
SIZE = 4096
"""Bytes of the body of the chat request."""
_SENTENCE = "Please read the notes of the meeting below and tell me who promised what, and until when. "


def key(tenant: str, number: int = 0) -> str:
    """One of a tenant's two API keys."""
    return f"sk-{hashlib.sha256(f'{tenant}/{number}'.encode()).hexdigest()[:40]}"


def policy_text(engine: str = "http://127.0.0.1:8000") -> str:
    """A dozen tenants with two keys each, a list of refused clients, and limits of which each request meets two."""
    tenants = {
        name: {
            "class": CLASSES[index % len(CLASSES)],
            "keys": [
                {"id": f"{name}-{number}", "sha256": hashlib.sha256(key(name, number).encode()).hexdigest()}
                for number in range(2)
            ],
        }
        for index, name in enumerate(TENANTS)
    }
    deny = [
        "*sqlmap*",
        "*masscan*",
        "*nikto*",
        "*nmap*",
        "*zgrab*",
        "*dirbuster*",
        "*havij*",
        "~^$",
        "~^python-requests/1\\.",
    ]
    most = 1_000_000_000
    minute, hour = {"unit": "minute", "requests_per_unit": most}, {"unit": "hour", "requests_per_unit": most}
    limits = [
        {"key": "tenant", "rate_limit": minute, "descriptors": [{"key": "class", "rate_limit": hour}]},
        *(
            {
                "key": "tenant",
                "value": name,
                "rate_limit": minute,
                "descriptors": [
                    {"key": "class", "value": "batch", "rate_limit": hour},
                    {"key": "class", "rate_limit": hour},
                ],
            }
            for name in TENANTS[4:8]
        ),
    ]
    return yaml.safe_dump(
        {
            "seawall": 1,
            "classes": {name: {} for name in CLASSES},
            "callers": {"tenants": tenants},
            "prefilter": {"user_agents": {"deny": deny}, "unknown_paths": "deny", "body": {"max": "64KiB"}},
            "limits": [{"domain": "llm", "descriptors": limits}],
            "output": {"max_tokens": 4096, "per_class": {"batch": 1024}},
            "engines": {"engine-0": {"url": engine, "kind": "vllm"}},
            "pools": {"big": {"engines": ["engine-0"], "concurrency": {"max": 100_000}}},
            "models": {MODEL: {"variants": {"full": {"pool": "big", "name": MODEL}}}},
        },
        sort_keys=False,
    )


def chat(*, stream: bool = True, max_tokens: int = 64, size: int = SIZE) -> bytes:
    """The body of a chat request, `size` bytes (700 at least)."""
    turns = [{"role": "user" if i % 2 else "assistant", "content": _SENTENCE * 4} for i in range(8)]
    document: dict[str, Any] = {
        "model": MODEL,
        "stream": stream,
        **({"stream_options": {"include_usage": True}} if stream else {}),
        "max_tokens": max_tokens,
        "temperature": 0.7,
        "user": "u-1",
        "messages": [{"role": "system", "content": _SENTENCE * 5}, *turns, {"role": "user", "content": ""}],
    }
    while len(_packed(document)) > size:
        # An earlier turn goes, as clients shorten a conversation.
        del document["messages"][1]
    document["messages"][-1]["content"] = (_SENTENCE * (size // len(_SENTENCE) + 1))[: size - len(_packed(document))]
    return _packed(document)


def _packed(document: object) -> bytes:
    return json.dumps(document, separators=(",", ":")).encode()


HEADERS = {
    "host": "llm.example",
    "accept": "application/json",
    "accept-encoding": "gzip, deflate",
    "content-type": "application/json",
    "user-agent": "OpenAI/Python 1.50.2",
    "x-stainless-lang": "python",
    "x-stainless-package-version": "1.50.2",
    "x-stainless-os": "Linux",
    "x-stainless-arch": "x64",
    "x-stainless-runtime": "CPython",
    "x-stainless-runtime-version": "3.12.6",
    "authorization": f"Bearer {key(TENANT)}",
    "x-stainless-retry-count": "0",
}
"""What the OpenAI client sends, beside the length."""
