"""The engine behind the HTTP shell: slots, service times, counters.

Service times are constant: every request gets its first token `ttft` seconds after it got its slot and one more (one of
each choice) every `tpot` seconds, however many others run. Waiting is first come, first served.
"""

import asyncio
from collections import Counter, deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import NamedTuple

from seawall.sim.generate import Answer, Finish, answer
from seawall.sim.request import Ask

KEPT_REQUESTS = 50
KEPT_BODY = 1 << 20


@dataclass(frozen=True, slots=True)
class Settings:
    """What makes one engine. The metrics carry the first of `models`, as vLLM's do; times are in seconds."""

    name: str = "engine-0"
    models: tuple[str, ...] = ("sim-chat",)
    seed: int = 1
    ttft: float = 0.02
    tpot: float = 0.005
    max_num_seqs: int = 256


class Piece(NamedTuple):
    """One token of one choice; `generated` is how many this choice has now, `finish` is set with its last."""

    choice: int
    text: str
    generated: int
    finish: Finish | None


@dataclass(frozen=True, slots=True)
class Received:
    """A request as it arrived; `body` is text, cut at 1 MiB, and `body_bytes` the full length."""

    path: str
    headers: dict[str, str]
    body: str
    body_bytes: int


@dataclass(slots=True)
class Totals:
    """Counters since the start."""

    requests: int = 0
    prompt_tokens: int = 0
    generated_tokens: int = 0
    finished: Counter[str] = field(default_factory=Counter)


class Run:
    """One request in its slot; `step` until it returns nothing."""

    def __init__(self, ask: Ask, answers: tuple[Answer, ...], settings: Settings, slow: float, totals: Totals) -> None:
        self.answers = answers
        self._ask = ask
        self._totals = totals
        self._steps = 0
        self._longest = max(choice.length for choice in answers)
        self._clock = asyncio.get_running_loop().time
        self._first = self._clock() + settings.ttft * slow
        self._between = settings.tpot * slow

    @property
    def done(self) -> bool:
        """Whether every choice has its last token."""
        return self._steps >= self._longest

    @property
    def finish(self) -> Finish:
        """How the request ended, for the metrics: "length" as soon as one choice was cut."""
        return "length" if any(choice.finish == "length" for choice in self.answers) else "stop"

    @property
    def generated(self) -> int:
        """Tokens of all choices so far."""
        return sum(min(self._steps, choice.length) for choice in self.answers)

    async def step(self) -> tuple[Piece, ...]:
        """Wait until the next tokens are due and return one of each choice that still runs; () at the end."""
        if self.done:
            return ()
        # Each token has its own due time, so a late wake-up does not delay all that follow.
        due = self._first + self._between * self._steps
        await asyncio.sleep(max(0.0, due - self._clock()))
        if self._steps == 0:
            self._totals.prompt_tokens += self._ask.prompt_tokens
        at = self._steps
        self._steps += 1
        pieces = tuple(
            Piece(index, choice.token(at), at + 1, choice.finish if at + 1 == choice.length else None)
            for index, choice in enumerate(self.answers)
            if at < choice.length
        )
        self._totals.generated_tokens += len(pieces)
        return pieces


class Engine:
    """Slots and counters of one simulated engine. It lives on one event loop."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.totals = Totals()
        self.running = 0
        self.waiting = 0
        self.peak_running = 0
        self.recent: deque[Received] = deque(maxlen=KEPT_REQUESTS)
        self._slots = asyncio.Semaphore(settings.max_num_seqs)

    def receive(self, path: str, headers: dict[str, str], body: bytes) -> int:
        """Remember a request, also one that will be refused; return its number, counted from 1."""
        text = body[:KEPT_BODY].decode("utf-8", "replace")
        self.recent.append(Received(path, headers, text, len(body)))
        self.totals.requests += 1
        return self.totals.requests

    @asynccontextmanager
    async def run(self, ask: Ask, slow: float = 1.0) -> AsyncIterator[Run]:
        """Wait for a slot and hold it. A caller that leaves by cancellation before the end has aborted the request."""
        self.waiting += 1
        try:
            await self._slots.acquire()
        except asyncio.CancelledError:
            self.totals.finished["abort"] += 1
            raise
        finally:
            self.waiting -= 1
        self.running += 1
        self.peak_running = max(self.peak_running, self.running)
        run = Run(ask, self._answers(ask), self.settings, slow, self.totals)
        try:
            yield run
        except (asyncio.CancelledError, ConnectionError):
            if not run.done:
                self.totals.finished["abort"] += 1
            raise
        finally:
            if run.done:
                self.totals.finished[run.finish] += 1
            self.running -= 1
            self._slots.release()

    def metrics(self) -> str:
        """Return the counters in Prometheus' text format, under vLLM's names."""
        labels = f'engine="0",model_name="{_escape(self.settings.models[0])}"'
        lines = []
        for name, kind, value in (
            ("num_requests_running", "gauge", self.running),
            ("num_requests_waiting", "gauge", self.waiting),
            ("prompt_tokens_total", "counter", self.totals.prompt_tokens),
            ("generation_tokens_total", "counter", self.totals.generated_tokens),
        ):
            lines += [f"# TYPE vllm:{name} {kind}", f"vllm:{name}{{{labels}}} {value}"]
        lines.append("# TYPE vllm:request_success_total counter")
        lines += [
            f'vllm:request_success_total{{{labels},finished_reason="{reason}"}} {self.totals.finished[reason]}'
            for reason in ("stop", "length", "abort")
        ]
        return "\n".join(lines) + "\n"

    def _answers(self, ask: Ask) -> tuple[Answer, ...]:
        """Decide all choices: those of the first prompt, then those of the second, as vLLM numbers them."""
        return tuple(
            answer(self.settings.seed, prompt, choice, cap=ask.cap, ignore_eos=ask.ignore_eos)
            for prompt in ask.prompts
            for choice in range(ask.n)
        )


def _escape(label: str) -> str:
    """Escape a label value."""
    return label.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
