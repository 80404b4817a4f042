"""A real engine that no one here wrote: llama.cpp's server on a model made at test time.

Import `llama` into a conftest to use it; `serving` starts one of another size. Before it reads /slots often, a test
should know: while anything is answered at least once a second, llama.cpp does not notice that the client of a request
that is *not* streamed has left. Streams are freed at their next token.
"""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Llama:
    """A running llama.cpp server; `url` has no path, the model's name is "llama"."""

    url: str
    pid: int
    slots: int


@contextmanager
def serving(folder: Path, size: str = "small", slots: int = 2) -> Iterator[Llama]:
    """Make a model in `folder` and serve it while the context is open."""
    model = folder / f"{size}.gguf"
    subprocess.run([sys.executable, HERE / "make_model.py", model, "--size", size], check=True)
    command = [sys.executable, HERE / "llama_server.py", model, "--slots", str(slots)]
    log = folder / "llama.log"
    with (
        log.open("wb") as errors,
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True) as process,
    ):
        try:
            assert process.stdout is not None
            url = next((line.split()[1] for line in process.stdout if line.startswith("READY ")), None)
            assert url is not None, f"llama.cpp did not start:\n{log.read_text(errors='replace')[-2000:]}"
            yield Llama(url, process.pid, slots)
        finally:
            process.kill()


@pytest.fixture(scope="session")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Llama]:
    """Serve the small model (30 to 200 tokens a second) with two slots."""
    with serving(tmp_path_factory.mktemp("llama")) as server:
        yield server
