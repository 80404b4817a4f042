"""One worker as a process: health, drain, the ends it can come to, and its socket's name."""

import asyncio
import json
import signal
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest

from seawall.policy.compile import digest_of
from seawall.serve.sockets import Listening
from tests.store.node import Valkey
from tests.wire.as_envoy import (
    HEALTH,
    SERVICES,
    Process,
    check,
    connect,
    health,
    should_rate_limit,
    status,
    watch,
)
from tests.wire.carried import refusal, until
from tests.wire.processes import DEMO, Folder, Worker

GONE = {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED}


async def serving(worker: Worker, channel: grpc.aio.Channel) -> None:
    """Wait until a worker says so itself."""
    await until(worker.own.exists, f"a socket; {worker.log}")
    async with asyncio.timeout(10):
        while await health(channel) != HEALTH.SERVING:
            assert worker.lives(), worker.log
            await asyncio.sleep(0.01)


async def ended(worker: Worker) -> int:
    """Exit status; what it listened on is gone."""
    await until(lambda: not worker.lives(), f"the worker ends; {worker.log}")
    assert not worker.own.exists()
    return int(worker.process.returncode)


async def at_the_engine(channel: grpc.aio.Channel) -> Process:
    """A stream whose request has been let on, as an answer that runs."""
    stream = Process(channel)
    await stream.request_headers()
    assert (await stream.request_body()).HasField("request_body")
    return stream


async def test_health_names(here: Folder) -> None:
    """The worker as a whole, `seawall`, and each service have a state; others are not found."""
    worker = here.worker()
    async with connect(worker.own) as channel:
        await serving(worker, channel)
        for name in ("", "seawall", *SERVICES):
            assert await health(channel, name) == HEALTH.SERVING
        for name in ("nobody", "Seawall", "x" * 5000, "grpc.health.v1.Health"):
            assert (await refusal(health(channel, name)))[0] is grpc.StatusCode.NOT_FOUND
        raw: Any = channel.unary_unary("/grpc.health.v1.Health/Check")
        assert (await refusal(raw(b"\xff")))[0] is grpc.StatusCode.INVALID_ARGUMENT
        worker.signal(signal.SIGINT)
        assert await ended(worker) == 0


async def test_a_policy_that_envoy_may_not_have_is_used_and_told(here: Folder) -> None:
    """The supervisor's word is that Envoy is late: the worker serves, and a metric and the log say that it isn't sure."""
    word = {"policies": {digest_of(DEMO.read_text("utf-8")): {"files": "late"}}}
    (here.path / "ready.json").write_text(json.dumps(word))
    worker = here.worker(envoy_dir=str(here.path))
    async with connect(worker.own) as channel:
        await serving(worker, channel)
        assert (await check(channel)).status.code == 0
    said = await worker.snapshot()
    assert said is not None
    assert ["seawall_policy_unsure_total", [], 1] in said["metrics"]["counters"]
    assert "Envoy did not say in time" in worker.log


async def test_a_worker_of_one_service(here: Folder) -> None:
    """It knows that one's health only, and carries nothing else."""
    worker = here.worker(services=("ext_authz",))
    async with connect(worker.own) as channel:
        await serving(worker, channel)
        assert await health(channel, SERVICES[0]) == HEALTH.SERVING
        assert (await refusal(health(channel, SERVICES[1])))[0] is grpc.StatusCode.NOT_FOUND
        assert (await check(channel)).status.code == 0
        asked = should_rate_limit(channel, {"tenant": "x"})
        assert (await refusal(asked))[0] is grpc.StatusCode.UNIMPLEMENTED


async def test_sigterm_drains(here: Folder) -> None:
    """NOT_SERVING first, while new calls are still answered; then GOAWAY; running streams end as they like; then gone."""
    worker = here.worker()
    async with connect(worker.name) as channel, connect(worker.own) as other:
        await serving(worker, other)
        stream = await at_the_engine(channel)
        watching = watch(other)
        unknown = watch(other, "nobody")
        assert [await watching.read(), await unknown.read()] == [HEALTH.SERVING, HEALTH.SERVICE_UNKNOWN]
        worker.signal(signal.SIGTERM)
        assert await watching.read() == HEALTH.NOT_SERVING
        # Envoy hears of it with its next check; until then it calls, on connections old and new.
        assert await health(channel) == HEALTH.NOT_SERVING
        assert (await check(channel)).status.code == 0
        late = await at_the_engine(channel)
        async with connect(worker.name) as new:
            assert (await check(new)).status.code == 0
        assert worker.name.is_symlink()
        # Watchers are sent away, or a drain would last as long as they do.
        assert await watching.read() is grpc.aio.EOF
        assert await unknown.read() is grpc.aio.EOF

        async def refused() -> bool:
            return await status(check(other)) in GONE

        async with asyncio.timeout(10):
            while not await refused():
                await asyncio.sleep(0.02)
        assert worker.lives()
        # Past GOAWAY the two streams are as well as ever.
        for running in (stream, late):
            answer = await running.response_headers(kind="text/event-stream")
            assert answer.HasField("response_headers")
            piece = await running.response_body(b"data: [DONE]\n\n", end=True)
            assert piece.response_body.response.body_mutation.streamed_response.body == b"data: [DONE]\n\n"
            assert await running.done() is grpc.StatusCode.OK
        assert await ended(worker) == 0
        assert not worker.name.is_symlink()
        assert worker.log.count("msg=request ") == 2
        assert "level=error" not in worker.log


async def test_grace_ends(here: Folder) -> None:
    """A stream that outlives the grace is cut, and its handler is told: the request is logged."""
    worker = here.worker(grace=0.1)
    async with connect(worker.name) as channel:
        await until(worker.name.exists, "a name")
        async with connect(worker.own) as other:
            await serving(worker, other)
        stream = await at_the_engine(channel)
        worker.signal(signal.SIGTERM)
        assert await stream.end() in GONE
        assert await ended(worker) == 0
        assert "reason=aborted" in worker.log
        assert "level=error" not in worker.log


@pytest.mark.parametrize("first", ["at once", "while draining"])
async def test_sigint_stops(here: Folder, first: str) -> None:
    """SIGINT gives nobody time: not to Envoy to notice, not to a stream; a drain under way is cut short too."""
    worker = here.worker(grace=1000.0, check_interval=30.0)
    async with connect(worker.own) as channel:
        await serving(worker, channel)
        stream = await at_the_engine(channel)
        if first == "while draining":
            watching = watch(channel)
            await watching.read()
            worker.signal(signal.SIGTERM)
            assert await watching.read() == HEALTH.NOT_SERVING
        worker.signal(signal.SIGINT)
        assert await stream.end() in GONE
        assert await ended(worker) == 0
        assert not worker.name.is_symlink()
        assert "reason=aborted" in worker.log


async def test_sigint_within_the_grace(here: Folder) -> None:
    """Also once GOAWAY is out and the worker only waits for a stream."""
    worker = here.worker(grace=1000.0)
    async with connect(worker.own) as channel:
        await serving(worker, channel)
        stream = await at_the_engine(channel)
        worker.signal(signal.SIGTERM)
        async with asyncio.timeout(10), connect(worker.own) as other:
            while await status(check(other)) not in GONE:
                await asyncio.sleep(0.02)
        worker.signal(signal.SIGINT)
        assert await stream.end() in GONE
        assert await ended(worker) == 0


async def test_a_store_that_is_away(here: Folder, node: Valkey) -> None:
    """`start: wait`: NOT_SERVING until the store has answered and has a policy; a name of another is left to it."""
    node.kill()
    other = here.path / "s" / "other"
    worker = here.worker(store=node.url, policy_file=None)
    worker.name.symlink_to(other.name)
    await until(worker.own.exists, f"a socket; {worker.log}")
    async with connect(worker.own) as channel:
        watching = watch(channel)
        assert await watching.read() == HEALTH.NOT_SERVING
        assert await refusal(check(channel)) == (grpc.StatusCode.UNAVAILABLE, "no policy yet")
        stream = Process(channel)
        assert await stream.end() is grpc.StatusCode.UNAVAILABLE
        told = await worker.snapshot()
        assert told is not None
        assert (told["state"], told["store_up"]) == ("starting", False)
        await node.start()
        # The store is there, but has no policy.
        async with asyncio.timeout(10):
            while not (await worker.snapshot() or {})["store_up"]:
                await asyncio.sleep(0.02)
        assert worker.name.readlink() == Path(other.name)
        assert await health(channel) == HEALTH.NOT_SERVING
        seawall = here.run("-m", "seawall", "policy", "push", str(DEMO), SEAWALL_STORE=node.url)
        assert await watching.read() == HEALTH.SERVING
        assert (await check(channel)).status.code == 0
        assert worker.name.readlink().name == worker.own.name
        await until(lambda: not seawall.lives(), "pushed")


async def test_a_name_that_nobody_has_is_taken_at_once(here: Folder, node: Valkey) -> None:
    """Envoy then asks for health and is told NOT_SERVING, which it takes better than no answer."""
    node.kill()
    worker = here.worker(store=node.url, policy_file=str(DEMO))
    await until(worker.name.exists, f"a name; {worker.log}")
    async with connect(worker.name) as channel:
        assert await health(channel) == HEALTH.NOT_SERVING
        worker.signal(signal.SIGTERM)
        assert await ended(worker) == 0


async def test_starting_without_the_store(here: Folder, node: Valkey) -> None:
    """`start: serve`: the file's policy is in force, and the store's once it is there."""
    node.kill()
    text = DEMO.read_text("utf-8").replace("start: wait", "start: serve")
    worker = here.worker(store=node.url, policy_file=here.policy(text))
    async with connect(worker.own) as channel:
        await serving(worker, channel)
        response = await check(channel)
        assert response.dynamic_metadata.fields["policy"].string_value == "0"
        assert (await should_rate_limit(channel, {"tenant": "demo-vip"})).overall_code == 1
        await node.start()
        await asyncio.wait_for(pushed(here, node), 10)

        async def version() -> str:
            return str((await check(channel)).dynamic_metadata.fields["policy"].string_value)

        async with asyncio.timeout(10):
            while await version() != "1":
                await asyncio.sleep(0.02)


async def pushed(here: Folder, node: Valkey) -> None:
    push = here.run("-m", "seawall", "policy", "push", str(DEMO), SEAWALL_STORE=node.url)
    await until(lambda: not push.lives(), "pushed")
    assert push.process.returncode == 0, push.log


async def test_no_supervisor(here: Folder) -> None:
    """A worker whose supervisor's end of the line is closed drains by itself, once no successor takes its name."""
    worker = here.worker()
    async with connect(worker.own) as channel:
        await serving(worker, channel)
        assert await worker.snapshot() is not None
        stream = await at_the_engine(channel)
        watching = watch(channel)
        assert await watching.read() == HEALTH.SERVING
        successor = here.worker()
        async with connect(successor.own) as next_channel:
            await serving(successor, next_channel)
        worker.abandon()
        # The successor has the name: no NOT_SERVING, which would be taken for the successor's.
        assert await watching.read() is grpc.aio.EOF
        assert await stream.done() is grpc.StatusCode.OK
        assert await ended(worker) == 0
        assert successor.name.readlink().name == successor.own.name
        async with connect(successor.name) as channel_by_name:
            assert (await check(channel_by_name)).status.code == 0


async def test_a_name_is_taken_over(here: Folder) -> None:
    """A new worker takes the name over while the old one drains, and the old one's end does not lose it."""
    old = here.worker()
    async with connect(old.own) as channel:
        await serving(old, channel)
        assert old.name.readlink().name == old.own.name
        new = here.worker()
        async with connect(new.own) as new_channel:
            await serving(new, new_channel)
            assert new.name.readlink().name == new.own.name
            old.signal(signal.SIGTERM)
            assert await ended(old) == 0
            async with connect(new.name) as by_name:
                assert (await check(by_name)).status.code == 0
            new.signal(signal.SIGTERM)
            assert await ended(new) == 0
            assert not new.name.is_symlink()


async def test_an_address_that_can_not_be_had(here: Folder) -> None:
    """One line says so, and the worker ends with 1."""
    (here.path / "file").touch()
    worker = here.worker(socket_dir=str(here.path / "file"))
    await until(lambda: not worker.lives(), "the worker ends")
    assert worker.process.returncode == 1
    assert "can't listen" in worker.log
    assert "Traceback" not in worker.log


def test_listening(tmp_path: Path) -> None:
    """The link that is a name: moved into place, removed by its owner alone."""
    name = tmp_path / "w0.sock"
    listening = Listening(str(name))
    assert listening.own == Path(f"{name}.{listening.own.suffix[1:]}")
    assert (listening.named(), listening.ours()) == (False, False)
    listening.own.touch()
    listening.publish()
    listening.publish()
    assert name.readlink() == Path(listening.own.name)  # relative: the folder may be mounted elsewhere for Envoy
    assert (listening.named(), listening.ours()) == (True, True)
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted([name.name, listening.own.name])
    # Someone else takes the name; our end leaves it.
    (tmp_path / "new").symlink_to("w0.sock.1")
    (tmp_path / "new").replace(name)
    assert (listening.named(), listening.ours()) == (True, False)
    listening.withdraw()
    assert name.readlink() == Path("w0.sock.1")
    assert not listening.own.exists()
    # And takes it back.
    listening.publish()
    assert listening.ours()
    listening.withdraw()
    listening.withdraw()
    assert list(tmp_path.iterdir()) == []
