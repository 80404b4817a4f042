"""A whole gate of `seawall up` for tests: started as a user starts it, asked as a user asks it."""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2 as httpx
from openai import OpenAI
from prometheus_client.parser import text_string_to_metric_families

from tests.e2e.tiny_envoy import free_port

ROOT = Path(__file__).resolve().parent.parent.parent
DEMO = (ROOT / "examples" / "policy.yaml").read_text("utf-8")
PAUSE = threading.Event()


def until(holds: Callable[[], Any], what: str, seconds: float = 30) -> Any:
    """Wait until something holds: bounded, and told by name when it does not."""
    for _ in range(int(seconds / 0.05)):
        if value := holds():
            return value
        PAUSE.wait(0.05)
    raise AssertionError(f"did not happen in {seconds} s: {what}")


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in {"Z", "X"}


def children(pid: int) -> list[int]:
    try:
        return [int(p) for p in Path(f"/proc/{pid}/task/{pid}/children").read_text("utf-8").split()]
    except OSError:
        return []


class RunningGate:
    """What `up --json` told, and ways to ask the gate."""

    def __init__(self, told: dict[str, Any], environ: Mapping[str, str], process: subprocess.Popen[str]):
        self.told = told
        self.environ = environ
        self.process = process
        self.base = str(told["listener"])
        self.keys: dict[str, str] = told["keys"]
        self.model = str(told["model"])
        self.policy: str | None = None
        """Text that a test pushed last."""

    @property
    def pids(self) -> dict[str, int]:
        """Pids as they are now: children that died were started again."""
        for path in Path(self.environ["XDG_RUNTIME_DIR"]).glob("seawall/up-*.json"):
            data = json.loads(path.read_text("utf-8"))
            if data["pid"] == self.process.pid:
                return dict(data["told"]["pids"])
        return dict(self.told["pids"])

    def workers(self) -> list[int]:
        return children(self.pids["supervisor"])

    def openai(self, class_: str = "vip", **options: Any) -> OpenAI:
        return OpenAI(base_url=f"{self.base}/v1", api_key=self.keys[class_], max_retries=0, timeout=60, **options)

    def get(self, path: str, class_: str = "vip", **headers: str) -> httpx.Response:
        return httpx.get(f"{self.base}{path}", headers=self.headers(class_) | headers, timeout=60)

    def post(self, path: str, content: bytes | str, class_: str = "vip", **headers: str) -> httpx.Response:
        sent = self.headers(class_) | {"content-type": "application/json"} | headers
        return httpx.post(f"{self.base}{path}", content=content, headers=sent, timeout=60)

    def chat(self, class_: str = "vip", text: str = "Hello", **more: Any) -> httpx.Response:
        body = {"model": self.model, "messages": [{"role": "user", "content": text}], **more}
        return self.post("/v1/chat/completions", json.dumps(body), class_)

    def headers(self, class_: str) -> dict[str, str]:
        return {"authorization": f"Bearer {self.keys[class_]}"}

    def seawall(self, *args: str, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "seawall", *args]
        return subprocess.run(
            command, env=dict(self.environ), input=stdin, capture_output=True, text=True, timeout=60, check=False
        )

    def push(self, text: str) -> None:
        """Push a policy and wait until every worker runs it."""
        done = self.seawall("policy", "push", "-", stdin=text)
        assert done.returncode == 0, done.stderr
        self.policy = text
        self.settled()

    def settled(self) -> None:
        until(lambda: not any(w["behind"] for w in self.status()["workers"]), "all workers run the current version")

    def status(self) -> dict[str, Any]:
        return dict(json.loads(self.seawall("status", "--json").stdout))

    def metrics(self) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
        text = httpx.get(self.told["metrics"], timeout=30).text
        return {
            (sample.name, frozenset(sample.labels.items())): sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        }

    def metric(self, name: str, **labels: str) -> float:
        return sum(v for (n, have), v in self.metrics().items() if n == name and set(labels.items()) <= have)

    def in_flight(self) -> int:
        return sum(pool["holders"] for pool in self.status()["pools"])

    def engine(self, index: int = 0) -> dict[str, Any]:
        return dict(httpx.get(f"{self.told['engines'][index]}/sim/state", timeout=30).json())

    def fault(self, index: int | None = None, **fault: Any) -> None:
        """Set a fault on one simulator or on all; without one, clear it."""
        engines = self.told["engines"] if index is None else [self.told["engines"][index]]
        for url in engines:
            if fault:
                httpx.put(f"{url}/sim/faults", json=fault, timeout=30).raise_for_status()
            else:
                httpx.delete(f"{url}/sim/faults", timeout=30).raise_for_status()

    def get_admin(self, path: str) -> str:
        return httpx.get(f"{self.told['admin']}{path}", timeout=30).text

    def log(self, name: str = "supervisor") -> str:
        return (Path(self.told["logs"]) / f"{name}.log").read_text("utf-8")


@contextmanager
def running(*args: str, policy: str | None = None, **environ: str) -> Iterator[RunningGate]:
    """Run `seawall up` in the foreground until the block ends; everything it made is gone after it."""
    # Not pytest's tmp_path: a socket's path must stay under 108 bytes.
    folder = Path(tempfile.mkdtemp(prefix="sw-"))
    env = {k: v for k, v in os.environ.items() if not k.startswith("SEAWALL_")}
    env |= {"XDG_RUNTIME_DIR": str(folder), **environ}
    command = [sys.executable, "-m", "seawall", "up", "--json", "--port", str(free_port()), *args]
    if policy is not None:
        (folder / "policy.yaml").write_text(policy, "utf-8")
        command += ["--policy", str(folder / "policy.yaml")]
    process = subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stderr is not None
    try:
        line = process.stdout.readline()
        assert line, process.stderr.read()
        yield RunningGate(json.loads(line), env, process)
    finally:
        stop(process)
        process.stdout.close()
        process.stderr.close()
        shutil.rmtree(folder, ignore_errors=True)


def stop(process: subprocess.Popen[str]) -> None:
    if process.poll() is None:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
