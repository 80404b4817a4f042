"""Our gRPC client: one bidirectional stream of bytes to a server, as grpcio carries it.

Every connection is made anew (no shared subchannels), so certificate files are read each time, and when to try again is
the caller's alone.
"""

import asyncio
import contextlib
import ssl
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import grpc
import grpc.aio

from seawall.rpc.tls import ClientTls

_KEEPALIVE = 310_000
"""Milliseconds between pings on a silent stream: grpc-go's servers close connections that ping more than once in 5 min."""
_KEEPALIVE_ANSWER = 20_000


class StreamEnded(Exception):
    """The stream is no more, or never was; `status` is the name of a gRPC status code."""

    def __init__(self, status: str, details: str):
        super().__init__(f"{status}: {details}" if details else status)
        self.status = status


class Stream:
    """An open stream."""

    def __init__(self, channel: grpc.aio.Channel, call: Any):
        self._channel = channel
        self._call = call

    @classmethod
    async def open(
        cls,
        address: str,
        method: str,
        *,
        tls: ClientTls | None = None,
        metadata: Sequence[tuple[str, str]] = (),
        max_message: int | None = None,
        timeout: float,
    ) -> "Stream":
        """Connect within `timeout` seconds, and call `/package.Service/Method`.

        Raises StreamEnded: UNAVAILABLE where the server can't be reached or trusted, INVALID_ARGUMENT for a certificate
        file or header of ours that is of no use, named without its content.
        """
        channel = _channel(address, tls, max_message)
        try:
            async with asyncio.timeout(timeout):
                reached = await _connected(channel)
                call: Any = channel.stream_stream(method)(metadata=tuple(metadata) or None)
                stream = cls(channel, call)
                if not reached:
                    # The call fails at once, and knows why; the channel does not say.
                    raise await stream._end()
                return stream
        except TimeoutError:
            await channel.close()
            raise StreamEnded("UNAVAILABLE", f"{address} gave no answer in {timeout:g} s") from None
        except BaseException:
            await channel.close()
            raise

    async def send(self, message: bytes) -> None:
        """Send one message; raises StreamEnded."""
        try:
            await self._call.write(message)
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
            raise await self._end() from None

    async def receive(self) -> bytes:
        """Wait for a message; raises StreamEnded when there will be none."""
        try:
            message = await self._call.read()
        except grpc.aio.AioRpcError:
            raise await self._end() from None
        if not isinstance(message, bytes):  # grpc.aio.EOF
            raise await self._end()
        return message

    async def _end(self) -> StreamEnded:
        code, details = await self._call.code(), await self._call.details()
        return StreamEnded(code.name, details or "the server has ended the stream")

    async def close(self) -> None:
        """Cancel the call and close the connection."""
        self._call.cancel()
        with contextlib.suppress(grpc.aio.AioRpcError):
            await self._channel.close()


async def _connected(channel: grpc.aio.Channel) -> bool:
    """Wait for the first try: True where it has come to a connection."""
    while (state := channel.get_state(try_to_connect=True)) is not grpc.ChannelConnectivity.READY:
        if state is grpc.ChannelConnectivity.TRANSIENT_FAILURE:
            return False
        await channel.wait_for_state_change(state)
    return True


def _channel(address: str, tls: ClientTls | None, max_message: int | None) -> grpc.aio.Channel:
    options: list[tuple[str, Any]] = [
        ("grpc.use_local_subchannel_pool", 1),
        ("grpc.keepalive_time_ms", _KEEPALIVE),
        ("grpc.keepalive_timeout_ms", _KEEPALIVE_ANSWER),
    ]
    if max_message is not None:
        options.append(("grpc.max_receive_message_length", max_message))
    if tls is None:
        return grpc.aio.insecure_channel(address, options=options)
    if tls.server_name is not None:
        options.append(("grpc.ssl_target_name_override", tls.server_name))
    credentials = grpc.ssl_channel_credentials(
        _file(tls.ca or ssl.get_default_verify_paths().cafile),
        _file(tls.key),
        _file(tls.cert),
    )
    return grpc.aio.secure_channel(address, credentials, options=options)


def _file(path: str | None) -> bytes | None:
    if path is None:
        return None
    try:
        return Path(path).read_bytes()
    except OSError as e:
        raise StreamEnded("INVALID_ARGUMENT", f"{path}: {e.strerror or e}") from None
