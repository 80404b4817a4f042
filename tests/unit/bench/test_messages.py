"""What own code is measured with: recorded messages that still mean what they meant, and requests that still fit."""

import asyncio
import json

import pytest

from bench.code import Stages, checks, finished, limits, rows
from bench.http_load import request
from bench.inside import services
from bench.push import changed
from bench.realistic import CLASSES, SIZE, TENANTS, chat, policy_text
from bench.record import recorded
from seawall.policy.compile import compile_policy
from seawall.proto.gen import ext_authz_pb2, ext_proc_pb2, ratelimit_pb2
from seawall.rpc.contract import Call

CALL = Call("", {}, None)


def test_every_key_is_let_in_and_counted() -> None:
    """Nothing that is measured is a refusal, and both limits count."""

    async def answers() -> tuple[list[bytes], list[bytes]]:
        async with services(policy_text()) as own:
            messages = recorded()
            check = own["ext_authz"].unary["Check"]
            limit = own["ratelimit"].unary["ShouldRateLimit"]
            checked = [finished(check(message, CALL)) for message in checks(messages["check"][0])]
            return checked, [finished(limit(message, CALL)) for message in limits(messages["limit"][0])]

    checked, limited = asyncio.run(answers())
    tenants = []
    for answer in map(ext_authz_pb2.CheckResponse.FromString, checked):
        assert answer.WhichOneof("http_response") == "ok_response"
        tenants.append(answer.dynamic_metadata.fields["tenant"].string_value)
    assert tenants == [tenant for tenant in TENANTS for _ in range(2)]
    assert len(limited) == len(TENANTS) * len(CLASSES)
    for told in map(ratelimit_pb2.RateLimitResponse.FromString, limited):
        # The last descriptor tells the version of the policy, and has no limit.
        assert [status.current_limit.requests_per_unit for status in told.statuses] == [1_000_000_000] * 2 + [0]
        assert told.overall_code == told.OK


def test_every_stage_runs() -> None:
    """Each row prepares its streams, runs, and does so a second time."""

    async def run() -> None:
        async with services(policy_text(), log_level="error") as own, services(policy_text()) as loud:
            for prepared in rows(own, loud).values():
                prepared(16)()
                prepared(32)()

    asyncio.run(run())


def test_stages() -> None:
    """One request is cut where it should be, and each copy has a rid of its own."""
    stages = Stages.of(recorded()["process"])

    def parsed(message: bytes) -> ext_proc_pb2.ProcessingRequest:
        return ext_proc_pb2.ProcessingRequest.FromString(message)

    kinds = [parsed(m).WhichOneof("request") for m in (stages.headers, stages.body, stages.answer, stages.chunk)]
    assert kinds == ["request_headers", "request_body", "response_headers", "response_body"]
    assert len(parsed(stages.body).request_body.body) == SIZE
    assert parsed(stages.chunk).response_body.body.count(b"data: ") == 1
    assert b'"usage":null}\n\n' in parsed(stages.null()).response_body.body
    assert b'"usage":{' in parsed(stages.last[0]).response_body.body
    assert parsed(stages.last[-1]).response_body.end_of_stream
    rids = {
        parsed(stages.headers_of(n))
        .metadata_context.filter_metadata["envoy.filters.http.ext_authz"]
        .fields["rid"]
        .string_value
        for n in range(3)
    }
    assert len(rids) == 3


@pytest.mark.parametrize("size", [700, 800, 2048, SIZE])
@pytest.mark.parametrize("stream", [True, False])
def test_a_chat_has_its_size(size: int, stream: bool) -> None:
    body = chat(stream=stream, size=size)
    assert len(body) == size
    document = json.loads(body)
    assert document["stream"] is stream
    assert document["messages"][-1]["role"] == "user"
    head, _, sent = request(stream, size).partition(b"\r\n\r\n")
    assert f"content-length: {len(sent)}".encode() in head


def test_a_push_changes_the_limits_and_nothing_else() -> None:
    before, after = policy_text(), changed(policy_text(), 7)
    assert before != after
    assert after.replace("1000000007", "1000000000") == before
    assert compile_policy(after).digest != compile_policy(before).digest
