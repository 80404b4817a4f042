"""`seawall up` from start to end: what it leaves behind is nothing, however it ends."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx2 as httpx
import pytest

from tests.e2e.running_gate import DEMO, RunningGate, alive, children, running, until
from tests.e2e.tiny_envoy import free_port

pytestmark = pytest.mark.e2e


def everyone(gate: RunningGate) -> list[int]:
    """Every process of a gate: `up`, its children, the supervisor's workers."""
    return [*gate.pids.values(), *gate.workers()]


def sockets(gate: RunningGate) -> list[Path]:
    return [p for p in Path(gate.environ["XDG_RUNTIME_DIR"]).rglob("*") if p.is_socket() or p.is_symlink()]


@pytest.mark.parametrize("sig", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL], ids=lambda s: s.name)
def test_nothing_is_left_behind(sig: signal.Signals) -> None:
    """Ctrl-C, SIGTERM and SIGKILL of `up`, with a stream running: no process and no socket stays."""
    with running("--workers", "2") as gate:
        gate.fault(hang=2)
        body = json.dumps({"model": gate.model, "stream": True, "messages": [{"role": "user", "content": "x"}]})
        stream = subprocess.Popen(
            [
                *("curl", "-sN", f"{gate.base}/v1/chat/completions", "-d", body),
                *("-H", f"authorization: Bearer {gate.keys['vip']}"),
            ],
            stdout=subprocess.DEVNULL,
        )
        until(lambda: gate.in_flight() == 1, "a stream runs")
        pids, port = everyone(gate), int(gate.base.rpartition(":")[2])
        assert len(pids) == 8
        assert set(children(gate.pids["supervisor"])) == set(gate.workers())
        gate.process.send_signal(sig)
        until(lambda: not any(alive(pid) for pid in pids), "all processes are gone")
        stream.wait(30)
        assert not sockets(gate)
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("127.0.0.1", port))


@pytest.mark.parametrize("name", ["redis", "envoy", "supervisor", "engine-0"])
def test_a_killed_child_comes_back_and_leaves_nothing(name: str) -> None:
    """SIGKILL of any child: it is started again, requests are served, and the end is as clean as ever."""
    with running("--workers", "1") as gate:
        before = everyone(gate)
        os.kill(gate.pids[name], signal.SIGKILL)
        until(lambda: gate.pids[name] != gate.told["pids"][name], f"{name} was started again")

        def served() -> bool:
            try:
                return gate.chat(max_tokens=1).status_code == 200
            except httpx.HTTPError:
                return False

        until(served, "requests are served")
        until(lambda: [w["behind"] for w in gate.status()["workers"]][-1:] == [False], "the worker reports")
        assert int(gate.get("/v1/models").headers["x-ratelimit-remaining"]) > 0
        pids = {*before, *everyone(gate)}
        gate.process.send_signal(signal.SIGINT)
        until(lambda: not any(alive(pid) for pid in pids), "all processes are gone")
        assert not sockets(gate)


def test_workers_without_a_supervisor_go_with_the_gate() -> None:
    """Ctrl-C just after the supervisor died: nobody waits for its workers to find out."""
    with running("--workers", "1") as gate:
        pids = everyone(gate)
        os.kill(gate.pids["supervisor"], signal.SIGKILL)
        gate.process.send_signal(signal.SIGINT)
        until(lambda: not any(alive(pid) for pid in pids), "all processes are gone", 20)
        assert not sockets(gate)


@pytest.fixture
def scratch() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="sw-"))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


def up(scratch: Path, *args: str, **environ: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "XDG_RUNTIME_DIR": str(scratch), **environ}
    command = [sys.executable, "-m", "seawall", *args]
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=90, check=False)


def one_line(done: subprocess.CompletedProcess[str], *words: str) -> None:
    assert done.returncode == 1, done
    assert len(done.stderr.strip().splitlines()) == 1, done.stderr
    assert done.stderr.startswith("seawall: ")
    for word in words:
        assert word in done.stderr


@pytest.mark.parametrize("detach", [[], ["--detach"]], ids=["foreground", "detached"])
def test_what_can_t_start_says_why_in_one_line(scratch: Path, detach: list[str]) -> None:
    """A port in use, a missing file, a missing binary, no Redis: one line, exit 1, nothing left running."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        one_line(up(scratch, "up", "--port", str(port), *detach), str(port), "in use")
    free = ("--port", str(free_port()))
    one_line(up(scratch, "up", *free, "--policy", str(scratch / "none.yaml"), *detach), "none.yaml")
    one_line(up(scratch, "up", *free, "--redis", "redis://127.0.0.1:1/0", *detach), "redis")
    one_line(up(scratch, "up", *free, "--redis", "http://127.0.0.1:1/0", *detach), "redis://")
    one_line(up(scratch, "up", *free, "--upstream", "ftp://somewhere", *detach), "upstream")
    assert not [p for p in scratch.rglob("*") if p.is_socket() or p.name.startswith("up-")]


def test_a_missing_envoy_is_named(scratch: Path) -> None:
    """Without Envoy there is one line that says how to get it."""
    hidden = "import sys; sys.modules['envoy'] = None; from seawall.cli.main import main; main(['up'])"
    env = {**os.environ, "XDG_RUNTIME_DIR": str(scratch), "PATH": "/nonexistent"}
    done = subprocess.run([sys.executable, "-c", hidden], env=env, capture_output=True, text=True, check=False)
    one_line(done, "Envoy", "seawall[demo]")


def test_a_bad_policy_is_refused_with_all_mistakes(scratch: Path) -> None:
    """Every mistake on a line of its own, with file, line and column; exit 1; nothing was started."""
    path = scratch / "bad.yaml"
    path.write_text(DEMO.replace("class: vip", "class: vipp").replace("max_tokens", "max_tokns"), "utf-8")
    done = up(scratch, "up", "--port", str(free_port()), "--policy", str(path))
    assert done.returncode == 1
    lines = done.stderr.strip().splitlines()
    assert sum("bad.yaml:" in line for line in lines) == 2
    assert "did you mean 'vip'" in done.stderr
    assert not [p for p in scratch.rglob("*") if p.is_socket()]


def test_detach_status_and_down(scratch: Path) -> None:
    """`up --detach` returns when it is up, commands find it, `down` stops it, and a second `down` says so."""
    made = up(scratch, "up", "--detach", "--json", "--workers", "1", "--port", str(free_port()))
    assert made.returncode == 0, made.stderr
    told = json.loads(made.stdout)
    try:
        assert {"listener", "admin", "metrics", "redis", "model", "engines", "keys", "pids"} <= set(told)
        assert set(told["keys"]) == {"vip", "standard", "batch"}
        assert {"supervisor", "envoy", "redis", "engine-0", "engine-1"} <= set(told["pids"])
        status = up(scratch, "status", "--json")
        assert json.loads(status.stdout)["current"] == 1
        table = up(scratch, "status")
        assert "default" in table.stdout
        done = up(scratch, "restart")
        assert (done.returncode, done.stdout) == (0, "worker 1 of 1 replaced\n"), done
        again = up(scratch, "restart", "--json")
        assert json.loads(again.stdout) == {"phase": "done", "done": 1, "of": 1, "why": ""}
        supervisor = json.loads(up(scratch, "status", "--json").stdout)["supervisor"]
        assert supervisor["pid"] == told["pids"]["supervisor"]
        assert [p["generation"] for p in supervisor["processes"] if not p["role"]] == [3]
        assert "rolling restart done, 1 of 1 workers replaced" in up(scratch, "status").stdout
        asked = up(scratch, "restart", "--no-wait")
        assert f"process {supervisor['pid']} was asked" in asked.stdout
    finally:
        down = up(scratch, "down")
    assert down.returncode == 0, down.stderr
    assert not any(alive(pid) for pid in told["pids"].values())
    one_line(up(scratch, "down"), "no gate")
    one_line(up(scratch, "restart", "--socket-dir", str(scratch)), "no supervisor serves", "--socket-dir")
    one_line(up(scratch, "status"), "seawall up")


def test_a_real_redis_and_config_dir_are_used(scratch: Path) -> None:
    """--redis keeps the policy of that Redis; --config-dir keeps configuration and logs after the end."""
    with running("--workers", "1", "--config-dir", str(scratch / "c")) as first:
        changed = DEMO.replace("600", "601")
        first.push(changed)
        with running("--workers", "1", "--redis", first.told["redis"]) as second:
            assert second.seawall("policy", "show", "--store", first.told["redis"]).stdout == changed
            assert "redis" not in second.pids
            assert "was not pushed" in second.told["policy"]["note"]
            assert second.get("/v1/models").headers["x-ratelimit-limit"].startswith("601")
    assert (scratch / "c" / "envoy.json").is_file()
    assert (scratch / "c" / "logs" / "supervisor.log").is_file()


def test_a_second_gate_is_kept_apart(scratch: Path) -> None:
    """The same port or the same --config-dir is refused in one line, and the first gate goes on."""
    with running("--workers", "1", "--config-dir", str(scratch / "c")) as gate:
        port = gate.base.rpartition(":")[2]
        one_line(up(scratch, "up", "--port", port), port, "in use")
        taken = up(scratch, "up", "--port", str(free_port()), "--config-dir", str(scratch / "c"))
        one_line(taken, "--config-dir", "another gate")
        assert gate.chat(max_tokens=1).status_code == 200


def test_gates_that_start_at_once_choose_other_ports() -> None:
    """Two that look for free ports at the same moment both come up, each with its own Redis and engines."""

    def addresses() -> set[str]:
        with running("--workers", "1") as gate:
            together.wait(60)
            assert gate.chat(max_tokens=1).status_code == 200
            return {gate.told["redis"], gate.told["admin"], gate.told["metrics"], *gate.told["engines"]}

    together = threading.Barrier(2)
    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(lambda _: addresses(), range(2))
    assert not first & second


def test_a_worker_that_hangs_does_not_outlive_its_gate() -> None:
    """SIGSTOP of a worker, then Ctrl-C: nothing stays."""
    with running("--workers", "2") as gate:
        pids = everyone(gate)
        os.kill(gate.workers()[0], signal.SIGSTOP)
        gate.process.send_signal(signal.SIGINT)
        until(lambda: not any(alive(pid) for pid in pids), "all processes are gone")
        assert not sockets(gate)


def test_a_password_is_not_shown(scratch: Path) -> None:
    """The URL of --redis is shown without its password, and no log has it."""
    secret = "s3cret-pw"
    with running("--workers", "1") as first:
        redis = first.told["redis"].replace("redis://", "")
        parts = redis.partition("/")[0].rpartition(":")
        with socket.create_connection((parts[0], int(parts[2])), timeout=10) as s:
            s.sendall(f"CONFIG SET requirepass {secret}\r\n".encode())
            assert s.recv(64) == b"+OK\r\n"
        port = str(free_port())
        made = up(
            scratch,
            "up",
            "--detach",
            "--json",
            "--workers",
            "1",
            "--port",
            port,
            "--redis",
            f"redis://:{secret}@{redis}",
        )
        try:
            assert made.returncode == 0, made.stderr
            assert secret not in made.stdout
            told = json.loads(made.stdout)
            assert not any(secret in p.read_text("utf-8") for p in Path(told["logs"]).iterdir())
            assert secret not in Path(f"/proc/{told['pids']['up']}/cmdline").read_text("utf-8")
            assert json.loads(up(scratch, "status", "--json").stdout)["current"] == 1
        finally:
            assert up(scratch, "down").returncode == 0
