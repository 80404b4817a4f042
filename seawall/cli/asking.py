"""Questions over HTTP to what runs on this machine."""

import http.client
import json
from typing import Any
from urllib.parse import urlsplit


def ask(
    method: str, url: str, body: str | None = None, headers: dict[str, str] | None = None
) -> tuple[int, bytes] | None:
    """One HTTP request to this machine; None when nothing answers in 10 s."""
    parts = urlsplit(url)
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    connection = kind(parts.hostname or "", parts.port, timeout=10)
    target = f"{parts.path or '/'}?{parts.query}" if parts.query else parts.path or "/"
    try:
        connection.request(method, target, body, headers or {})
        response = connection.getresponse()
        return response.status, response.read()
    except (OSError, http.client.HTTPException):
        return None
    finally:
        connection.close()


def supervisor_says(address: str) -> dict[str, Any] | None:
    """What the supervisor at `host:port` says at /readyz, ready or not; None when it does not answer."""
    answer = ask("GET", f"http://{address}/readyz")
    if answer is None or answer[0] not in {200, 503}:
        return None
    try:
        return dict(json.loads(answer[1]))
    except ValueError:
        return None
