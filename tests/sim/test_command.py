"""`seawall sim` starts, serves, and stops."""

import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

COMMAND = [sys.executable, "-c", "from seawall.cli.main import main; main()", "sim"]


@contextmanager
def running(*options: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Run the command on a free port until the block ends; yields its process and URL."""
    with subprocess.Popen([*COMMAND, "--port", "0", *options], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            ready, _, url = process.stdout.readline().strip().partition(" ")
            assert ready == "READY"
            yield process, url
        finally:
            process.kill()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_serves_and_stops(number: signal.Signals):
    """It answers once READY is out and ends with 0 on a signal, also while a request hangs."""
    with running("--model", "a", "--model", "b", "--name", "engine-7") as (process, url):
        with urllib.request.urlopen(f"{url}/v1/models", timeout=10) as response:
            assert response.headers["x-engine"] == "engine-7"
            assert b'"id":"b"' in response.read()
        fault = urllib.request.Request(f"{url}/sim/faults", b'{"hang": 0}', method="PUT")
        urllib.request.urlopen(fault, timeout=10).close()
        ask = b'{"prompt": "x", "stream": true}'
        with urllib.request.urlopen(f"{url}/v1/completions", ask, timeout=10):
            process.send_signal(number)
            assert process.wait(timeout=10) == 0


def test_a_port_in_use_is_one_line():
    """The second engine on a port says so in one line and ends with 1."""
    with running() as (_, url):
        port = url.rsplit(":", 1)[1]
        second = subprocess.run([*COMMAND, "--port", port], capture_output=True, text=True, timeout=30, check=False)
    assert second.returncode == 1
    assert second.stderr == f"seawall: cannot listen on 127.0.0.1:{port}: the port is already in use\n"
    assert second.stdout == ""


def test_a_bad_option_is_wrong_usage():
    """Wrong usage is exit code 2, as everywhere."""
    bad = subprocess.run([*COMMAND, "--max-num-seqs", "0"], capture_output=True, text=True, timeout=30, check=False)
    assert bad.returncode == 2
    assert "--max-num-seqs" in bad.stderr


def test_help_shows_an_example():
    """--help has a line to copy."""
    shown = subprocess.run([*COMMAND, "--help"], capture_output=True, text=True, timeout=30, check=True)
    assert "seawall sim --port 8001" in shown.stdout
