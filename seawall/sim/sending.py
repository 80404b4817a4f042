"""The sending of one answer, whole or as a stream, and the faults that happen on the way."""

import asyncio
from contextlib import AbstractAsyncContextManager

from aiohttp import web

from seawall.sim import answer
from seawall.sim.engine import Engine, Run
from seawall.sim.faults import Fault, WrongUsage
from seawall.sim.request import Ask


class Cut(Exception):
    """The connection was dropped on purpose."""


class Sending:
    """Sends one answer; `stream` or `whole`, once. `response` is what aiohttp gets back, also after `Cut`."""

    def __init__(
        self,
        request: web.Request,
        engine: Engine,
        ask: Ask,
        reply: answer.Reply,
        fault: Fault,
        over: asyncio.Event,
    ) -> None:
        self.response = web.StreamResponse()
        self._request = request
        self._engine = engine
        self._ask = ask
        self._reply = reply
        self._fault = fault
        self._over = over
        self._chunks = 0

    async def whole(self) -> None:
        """Send one JSON document when all tokens are there."""
        async with self._slot() as run:
            if self._fault.hangs_after is not None:
                await _forever()
            texts: list[list[str]] = [[] for _ in run.answers]
            while pieces := await run.step():
                for piece in pieces:
                    texts[piece.choice].append(piece.text)
        choices = [("".join(text), choice.finish) for text, choice in zip(texts, run.answers, strict=True)]
        body = self._reply.whole(choices, self._usage(run.generated))
        self.response.content_type = "application/json"
        self.response.content_length = len(body)
        await self.response.prepare(self._request)
        if self._fault.cut is not None:
            await self.response.write(body[: len(body) // 2])
            self._drop()
        await self.response.write(body)
        await self.response.write_eof()

    async def stream(self) -> None:
        """Send one frame a token."""
        self.response.headers["content-type"] = "text/event-stream; charset=utf-8"
        if self._fault.hangs_after != -1:
            # As vLLM does: status and headers go out before the request has a slot.
            await self.response.prepare(self._request)
        async with self._slot() as run:
            await self._fail_if_due()
            while pieces := await run.step():
                if self._ask.chat and pieces[0].generated == 1:
                    for index in range(len(run.answers)):
                        await self._write(self._reply.role(index, self._so_far(0)))
                for piece in pieces:
                    so_far = self._so_far(piece.generated)
                    await self._write(self._reply.text(piece.choice, piece.text, so_far))
                    if piece.finish is not None:
                        await self._write(self._reply.finish(piece.choice, piece.finish, so_far))
        # The slot is free before the client can know that the answer is complete.
        total = self._usage(run.generated)
        if self._ask.include_usage and total is not None:
            await self._write(self._reply.usage(total))
        await self._write(answer.DONE)
        await self.response.write_eof()

    def _slot(self) -> AbstractAsyncContextManager[Run]:
        """Hold a slot of the engine, a slow one if the fault says so."""
        return self._engine.run(self._ask, self._fault.slow or 1.0)

    async def _write(self, frame: bytes) -> None:
        """Send one chunk, then fail if this was the last one before the fault."""
        await self.response.write(frame)
        self._chunks += 1
        await self._fail_if_due()

    async def _fail_if_due(self) -> None:
        """Cut, hang or hold when as many chunks are out as the fault says."""
        if self._fault.cut is not None and self._chunks >= self._fault.cut:
            self._drop()
        hangs_after = self._fault.hangs_after
        if hangs_after is not None and self._chunks >= hangs_after:
            await _forever()
        if self._fault.hold is not None and self._chunks >= self._fault.hold:
            await self._over.wait()

    def _drop(self) -> None:
        """Close the connection without the end of the body; what was written still arrives."""
        if self._request.transport is not None:
            self._request.transport.close()
        raise Cut

    def _so_far(self, generated: int) -> answer.Usage | None:
        """Return the usage that goes with a chunk of a choice with so many tokens."""
        return self._usage(generated) if self._ask.continuous_usage else None

    def _usage(self, generated: int) -> answer.Usage | None:
        """Return the usage as the fault lets it be told."""
        if self._fault.no_usage:
            return None
        wrong = self._fault.wrong_usage or WrongUsage()
        return answer.usage(
            self._ask.prompt_tokens if wrong.prompt_tokens is None else wrong.prompt_tokens,
            generated if wrong.completion_tokens is None else wrong.completion_tokens,
        )


async def _forever() -> None:
    """Wait until the client leaves, which cancels the handler."""
    await asyncio.get_running_loop().create_future()
