"""The sequence of one Process stream: messages to the exchange, its commands to Envoy and to the slots."""

import asyncio
import time
from collections.abc import Awaitable, Mapping, Sequence

from ext_proc import events as ev
from ext_proc import wire
from ext_proc.stream import Exchange
from seawall.decision import Reason
from seawall.llm.usage import Usage
from seawall.rpc.contract import Call, CloseReason, RpcError, RpcService, Sender, Status
from seawall.serve.gate import Gate
from seawall.serve.routes import Routes
from seawall.serve.slots import Hold


class Stream:
    """One request. Refused opening or a raised error makes Envoy answer 503 (`failure_mode_allow: false`)."""

    def __init__(
        self, gate: Gate, sender: Sender, exchange: Exchange, label: str, on_closed: "Service", said: Mapping[str, str]
    ):
        self._gate = gate
        self._sender = sender
        self._exchange = exchange
        self._label = label
        """Of the version that it is decided by."""
        self._service = on_closed
        self._said = said
        """Metadata of the call, in which the route says what it has to say."""
        self._hold: Hold | None = None
        self._alarm: asyncio.TimerHandle | None = None

    def message(self, data: bytes) -> Awaitable[None] | None:
        """Take one message; waits only where a slot has to be asked for."""
        try:
            event = wire.decode(data)
        except ValueError as e:
            raise RpcError(Status.INVALID_ARGUMENT, str(e)) from None
        exchange = self._exchange
        match event:
            case ev.ResponseBody():
                commands = exchange.response_body(event)
            case ev.RequestHeaders():
                self._take_version(event)
                exchange.route = self._service.routes.of(exchange.policy, self._said.items())
                commands = exchange.request_headers(event)
            case ev.RequestBody():
                commands = exchange.request_body(event)
            case ev.ResponseHeaders():
                commands = exchange.response_headers(event)
            case ev.Trailers():
                commands = exchange.trailers(event.response)
            case None:
                return None
        return self._do(commands)

    def _take_version(self, event: ev.RequestHeaders) -> None:
        """Decide by the version that the request has since ext_authz."""
        label = event.metadata.get("policy", "")
        if label and label != self._label:
            version = self._gate.version(label, "ext_proc")
            if version is not None:
                self._exchange.policy, self._label = version.policy, version.label

    def _do(self, commands: Sequence[ev.Command]) -> Awaitable[None] | None:
        waiting: Awaitable[None] | None = None
        for command in commands:
            if isinstance(command, ev.PassPiece):
                self._sender.send(wire.encode(command))
            elif isinstance(command, ev.Acquire):
                waiting = self._acquire(command)
            elif isinstance(command, ev.Release):
                if self._hold is not None:
                    self._hold.release()
            elif isinstance(command, ev.Alarm):
                self._alarm = asyncio.get_running_loop().call_later(command.after, self._expired)
            elif isinstance(command, ev.Finished):
                self._service.finished(command.record, self._label)
            else:
                self._sender.send(wire.encode(command))
        return waiting

    def _expired(self) -> None:
        self._do(self._exchange.alarm())

    async def _acquire(self, command: ev.Acquire) -> None:
        self._hold = self._gate.slots.hold(command.pool, command.rid)
        granted = await self._hold.acquire(command.limit)
        self._do(self._exchange.slot(granted))

    def closed(self, reason: CloseReason) -> None:
        """Give everything back."""
        del reason
        if self._alarm is not None:
            self._alarm.cancel()
        self._service.open_streams -= 1
        self._do(self._exchange.closed(time.monotonic()))


class Service:
    """Opens a Stream for each request."""

    def __init__(self, gate: Gate):
        self._gate = gate
        self.open_streams = 0
        self.routes = Routes("ext_proc", gate.settings.max_body, gate.metrics, gate.log)
        gate.metrics.gauges(lambda: [("seawall_streams", (), float(self.open_streams))])

    def process(self, call: Call, sender: Sender) -> Stream:
        """Open a stream; the request keeps the policy that its headers name, else the one that is in force now."""
        version = self._gate.policies.named("")
        if version is None:
            raise RpcError(Status.UNAVAILABLE, "no policy yet")
        self.open_streams += 1
        exchange = Exchange(version.policy, time.monotonic())
        return Stream(self._gate, sender, exchange, version.label, self, call.metadata)

    def finished(self, record: ev.Record, policy: str) -> None:
        """Count and log one request."""
        metrics = self._gate.metrics
        reason = record.reason.value
        metrics.count("seawall_decisions_total", "ext_proc", reason)
        metrics.count("seawall_requests_total", record.pool, record.class_, reason)
        if record.pool:
            metrics.observe("seawall_request_seconds", record.latency, record.pool)
            if record.usage is not None:
                self._count_tokens(record, record.usage)
            if record.truncated:
                metrics.count("seawall_truncated_total", record.pool, record.truncated)
            if record.unread:
                metrics.count("seawall_unread_answers_total", record.pool)
        self._gate.log(
            "info",
            "request",
            latency=record.latency,
            tenant=record.tenant,
            model=record.model[:100],
            pool=record.pool,
            **_tokens(record.usage),
            truncated=record.truncated,
            reason=reason,
            policy=policy,
            rid=record.rid,
        )

    def _count_tokens(self, record: ev.Record, usage: Usage) -> None:
        count, pool = self._gate.metrics.count, record.pool
        name = "seawall_tokens_estimated_total" if usage.estimated else "seawall_tokens_total"
        if usage.input_tokens is not None:
            count(name, pool, "input", n=usage.input_tokens)
        if usage.output_tokens is not None:
            count(name, pool, "output", n=usage.output_tokens)
        elif record.reason in {Reason.OK, Reason.ABORTED} and usage.estimated:
            count("seawall_usage_unknown_total", pool)
        if usage.cached_tokens:
            count("seawall_tokens_part_total", pool, "cached", n=usage.cached_tokens)
        if usage.reasoning_tokens:
            count("seawall_tokens_part_total", pool, "reasoning", n=usage.reasoning_tokens)


def _tokens(usage: Usage | None) -> dict[str, object]:
    if usage is None:
        return {}
    return {
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
        "cached_tokens": usage.cached_tokens,
        "reasoning_tokens": usage.reasoning_tokens,
        "estimated": "true" if usage.estimated else None,
    }


def build(gate: Gate) -> RpcService:
    """Entry point of `seawall.services`."""
    return RpcService(wire.SERVICE, {}, {wire.METHOD: Service(gate).process})
