"""Commands and workers over each form of Redis, as an operator starts them."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from pathlib import Path

import pytest

from tests.store.forms import Form, Secured
from tests.store.node import free_port

pytestmark = pytest.mark.store
POLICY = Path(__file__).parents[2] / "examples" / "policy.yaml"


@pytest.fixture(params=["tls", "cluster", "sentinel"])
def form(request: pytest.FixtureRequest) -> Form:
    form: Form = request.getfixturevalue(request.param)
    return form


def environment(form: Form, folder: Path) -> dict[str, str]:
    """What an operator sets; secrets and files beside the URL."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("SEAWALL_")}
    found = {**clean, "SEAWALL_STORE": form.url, "SEAWALL_SOCKET_DIR": str(folder), "SEAWALL_GRACE": "0"}
    if isinstance(form, Secured):
        found |= {
            "SEAWALL_STORE": form.url.partition("?")[0].replace("gate@", ""),
            "SEAWALL_STORE_USER": "gate",
            "SEAWALL_STORE_PASSWORD_FILE": f"{form.folder}/pw",
            "SEAWALL_STORE_CA": f"{form.folder}/ca",
            "SEAWALL_STORE_CERT": f"{form.folder}/cert",
            "SEAWALL_STORE_KEY": f"{form.folder}/key",
        }
    return found


def seawall(environ: dict[str, str], *words: str) -> str:
    command = [sys.executable, "-m", "seawall", *words]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_push_serve_and_status(form: Form, tmp_path_factory: pytest.TempPathFactory) -> None:
    asyncio.run(form.flush())
    environ = environment(form, tmp_path_factory.mktemp("s"))
    assert "1" in seawall(environ, "policy", "push", str(POLICY))
    port = free_port()
    command = [sys.executable, "-m", "seawall", "serve", "--workers", "1", "--http", f"127.0.0.1:{port}"]
    serving = subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    try:
        ready: dict[str, dict[str, dict[str, str]]] = {}
        ends = time.monotonic() + 60
        while not ready or {w["state"] for w in ready["workers"].values()} != {"serving"}:
            assert time.monotonic() < ends and serving.poll() is None
            threading.Event().wait(0.1)
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=5) as answer:
                    ready = json.load(answer)
            except OSError:
                continue
        assert [worker["store"] for worker in ready["workers"].values()] == ["up"]
        assert f"{os.uname().nodename}-0-" in seawall(environ, "status"), "the worker has reported"
    finally:
        serving.send_signal(signal.SIGINT)
        log, _ = serving.communicate(timeout=60)
    assert b"fault" not in log, log
    assert b"s3cr3t" not in log
