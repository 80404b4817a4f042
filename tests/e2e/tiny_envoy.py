"""A real Envoy for one test module, and a client that can send what no HTTP library would."""

import json
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple


def envoy_binary() -> str:
    found = shutil.which("envoy", path=str(Path(sys.prefix) / "bin")) or shutil.which("envoy")
    assert found, "the `demo` extra brings Envoy"
    return found


def free_port() -> int:
    with closing(socket.socket()) as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


def send(port: int, raw: bytes, patience: float = 30) -> Answer:
    """Send bytes and read the one answer, which must end with the connection or by its length."""
    with closing(socket.create_connection(("127.0.0.1", port), timeout=patience)) as s:
        s.sendall(raw)
        return received(s)


def received(s: socket.socket) -> Answer:
    """Read the one answer."""
    data = b""
    while not complete(data):
        piece = s.recv(65536)
        if not piece:
            break
        data += piece
    head, _, body = data.partition(b"\r\n\r\n")
    lines = head.decode("latin-1").split("\r\n")
    assert lines[0], "Envoy closed the connection without an answer"
    headers = {k.strip().lower(): v.strip() for k, _, v in (line.partition(":") for line in lines[1:])}
    return Answer(int(lines[0].split()[1]), headers, body)


def complete(data: bytes) -> bool:
    head, end, body = data.partition(b"\r\n\r\n")
    if not end:
        return False
    for line in head.lower().split(b"\r\n"):
        if line.startswith(b"content-length:"):
            return len(body) >= int(line.split(b":")[1])
    return False


def post(port: int, path: str, body: object, **headers: str) -> Answer:
    data = json.dumps(body).encode()
    more = "".join(f"{k.replace('_', '-')}: {v}\r\n" for k, v in headers.items())
    head = f"POST {path} HTTP/1.1\r\nhost: gate\r\ncontent-length: {len(data)}\r\nconnection: close\r\n{more}\r\n"
    return send(port, head.encode() + data)


@contextmanager
def running_envoy(configuration: Path, admin_port: int) -> Iterator[list[str]]:
    """Run Envoy until the block ends; gives the lines of its access log. It is ready when the block begins."""
    command = [envoy_binary(), "-c", str(configuration), "--use-dynamic-base-id", "--concurrency", "1", "-l", "error"]
    command += ["--file-flush-interval-msec", "200"]
    log: list[str] = []
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert process.stdout is not None
    lines = process.stdout
    reader = threading.Thread(target=lambda: log.extend(lines))
    reader.start()
    try:
        wait_ready(process, admin_port, log)
        yield log
    finally:
        process.kill()
        process.wait()
        reader.join()
        lines.close()


def wait_ready(process: subprocess.Popen[str], port: int, log: list[str]) -> None:
    pause = threading.Event()
    for _ in range(600):
        assert process.poll() is None, "".join(log)
        try:
            if send(port, b"GET /ready HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n").status == 200:
                return
        except (OSError, AssertionError):
            pass
        pause.wait(0.05)
    raise AssertionError("Envoy did not become ready:\n" + "".join(log))
