"""One request through ext_proc: a pure state machine, events in, commands out.

Request headers (an LLM path asks for the body and the answer) → body (capped, read, capped output, model, pool) → a slot
→ on to the engine → answer read for usage and changed where a policy says so → end. However it ends, the slot is given
back and the record written exactly once. Time is passed in: `now` is in seconds of a clock that never goes back.

An answer's body is asked for only where something in it is to be read or changed. What we end ourselves ends the
exchange with Envoy, which resets the request to the engine.
"""

from dataclasses import dataclass, replace
from enum import Enum, auto

from ext_proc import events as ev
from seawall.decision import Reason, Refusal
from seawall.llm.answer import Answer, Plan
from seawall.llm.errors import answer
from seawall.llm.protocols import Endpoint, Family, endpoint_of, family_of
from seawall.llm.reading import PLAIN, reader_of
from seawall.llm.request import LlmRequest, read_request
from seawall.llm.rewrites import CONTINUOUS_KINDS, NOTHING, Actions, Rewritten, plan_of, rewrite
from seawall.llm.truncate import caps_of
from seawall.llm.usage import Usage
from seawall.mesh.names import CLASS_HEADER, POOL_HEADER, TENANT_HEADER
from seawall.policy.compiled import Policy, Profile, Variant
from seawall.policy.route import OWN

RETRY_AFTER_FULL = 1.0
"""Seconds after which a client may try a full pool again; measured drain rates come with admission."""

CHANGED_HEADER = "x-seawall-changed"
"""On an answer: fields of the client's request that were taken out or lowered."""


class _State(Enum):
    OPEN = auto()
    BODY = auto()
    """The body is to come."""
    SLOT = auto()
    """Waits for the slot."""
    ENGINE = auto()
    """With the engine; no answer yet."""
    ANSWER = auto()
    OVER = auto()
    """Answered by us, or passed: nothing is to follow."""


@dataclass(slots=True)
class Exchange:
    """State of one request.

    `policy` is the snapshot that it is decided by, `route` what its route has in place of it; both are set before its
    headers come.
    """

    policy: Policy
    started: float
    route: Profile = OWN
    state: _State = _State.OPEN
    endpoint: Endpoint | None = None
    family: Family = Family.OPENAI
    tenant: str = ""
    class_: str = ""
    rid: str = ""
    model: str = ""
    request: LlmRequest | None = None
    """Until it was let on: a long answer must not keep a long prompt."""
    variant: Variant | None = None
    reason: Reason | None = None
    reached: bool = False
    """The request was let on to an engine."""
    answer_seen: bool = False
    """The answer was seen to its end."""
    actions: Actions = NOTHING
    """What is done to the request beside what its policy says of every one."""
    _plan: Plan | None = None
    _changed: tuple[str, ...] = ()
    _answer: Answer | None = None
    _length_told: bool = True
    _ended: bool = False
    """The answer's end was sent by us."""
    _closed: bool = False

    def request_headers(self, event: ev.RequestHeaders) -> list[ev.Command]:
        """Decide by the headers whether this is ours, and refuse what needs no body to be refused."""
        if self.state is not _State.OPEN:
            return []
        headers = event.headers
        path = headers.get(":path", "/")
        self.endpoint = endpoint_of(path)
        self.family = family_of(path)
        self.tenant = event.metadata.get("tenant", "")
        self.class_ = self.route.class_ or event.metadata.get("class", "") or self.policy.classes[-1]
        # Without ext_authz in the chain nobody made a rid; a client's own request id alone must not be one.
        self.rid = event.metadata.get("rid", "") or f"{headers.get('x-request-id', '')}|{event.source}"
        if self.endpoint is None and self.route.unknown_paths == "deny":
            return self._refuse(Refusal(Reason.UNKNOWN_PATH, "There is no such path here."))
        if self.endpoint is None or not self.endpoint.generates:
            self.state = _State.OVER
            return [ev.PassHeaders(self._pool_headers(self._passing_pool()))]
        if headers.get(":method") != "POST":
            return self._refuse(Refusal(Reason.METHOD, f"'{path.partition('?')[0][:100]}' takes POST only."))
        coding = headers.get("content-encoding", "").strip().lower()
        if coding not in PLAIN:
            message = f"Request bodies with content-encoding '{coding[:40]}' can't be read here; send them plain."
            return self._refuse(Refusal(Reason.ENCODING, message, "content-encoding"))
        length = headers.get("content-length", "")
        if length.isdecimal() and int(length[:20]) > self._body_cap():
            return self._refuse(self._too_large(int(length[:20])))
        if event.end_of_stream:
            return self._refuse(Refusal(Reason.MALFORMED, "The body is empty.", "body"))
        self.state = _State.BODY
        self._length_told = bool(length)
        return [ev.AskForBody()]

    def request_body(self, event: ev.RequestBody) -> list[ev.Command]:
        """Read the whole body, choose pool and caps, ask for a slot."""
        if self.state is not _State.BODY or self.endpoint is None:
            # Nothing passes beside the slot that is asked for.
            return [ev.PassBody()] if self.reached and self.state is not _State.OVER else []
        # It comes whole, without `end_of_stream` only where trailers are to follow it.
        if len(event.body) > self._body_cap():
            return self._refuse(self._too_large(len(event.body)))
        request = read_request(self.endpoint, event.body)
        if isinstance(request, Refusal):
            return self._refuse(request)
        variant = self._variant(request.model)
        if isinstance(variant, Refusal):
            return self._refuse(variant)
        self.request, self.variant, self.model = request, variant, request.model
        self.state = _State.SLOT
        return [ev.Acquire(variant.pool, self.rid, self.policy.pools[variant.pool].max_in_flight)]

    def slot(self, granted: bool) -> list[ev.Command]:
        """The pool has answered."""
        if self.state is not _State.SLOT:
            return []
        assert self.request is not None and self.variant is not None
        if not granted:
            return self._refuse(
                Refusal(
                    Reason.OVERLOADED,
                    "All slots of the model's engines are taken. Please try again shortly.",
                    retry_after=RETRY_AFTER_FULL,
                )
            )
        request, self.request = self.request, None
        rewritten = self._rewritten(request, self.variant)
        if isinstance(rewritten, Refusal):
            return self._refuse(rewritten)
        self.state = _State.ENGINE
        self.reached = True
        self._changed = rewritten.fields
        headers = self._pool_headers(self.variant.pool)
        if rewritten.body is not None and self._length_told:
            headers["content-length"] = str(len(rewritten.body))
        # A compressed answer can't always be read; engines then send it plain.
        plan = self._plan
        looked_at = plan is None or plan.count or plan.changes_stream or plan.changes_whole
        return [ev.PassBody(rewritten.body, headers, ("accept-encoding",) if looked_at else ())]

    def response_headers(self, event: ev.ResponseHeaders) -> list[ev.Command]:
        """Choose what of the answer is to be seen."""
        if self.state is _State.OVER:
            # Our own answer, or one that we let pass.
            return [ev.PassResponseHeaders(stream_body=False)]
        get = event.headers.get
        status = get(":status", "")
        self.state = _State.ANSWER
        told = {CHANGED_HEADER: ", ".join(self._changed)} if self._changed else {}
        answer = None
        if not status.startswith("2"):
            self.reason = Reason.UPSTREAM_ERROR if status.startswith("5") else Reason.OK
        elif self._plan is not None and not event.end_of_stream:
            answer = reader_of(self._plan, status, get("content-type", ""), get("content-encoding", ""))
        if answer is None or not answer.watched:
            # What isn't looked at counts as complete: its end is not seen.
            self._answer, self.answer_seen = answer, True
            return [ev.PassResponseHeaders(False, told)]
        self._answer = answer
        # Envoy leaves the length as it is when the body is asked for at this time.
        removed = ["content-length"] if answer.changing else []
        if answer.recoded:
            removed.append("content-encoding")
        commands: list[ev.Command] = [ev.PassResponseHeaders(True, told, removed)]
        if answer.expires is not None:
            commands.append(ev.Alarm(answer.expires))
        return commands

    def response_body(self, event: ev.ResponseBody) -> list[ev.Command]:
        """Send a piece on as the answer's reader gives it back."""
        answer = self._answer
        if answer is None:
            return [ev.PassPiece(event.body, event.end_of_stream)]
        if self._ended:
            # Sent by Envoy before it knew of the end.
            return []
        body = answer.piece(event.body)
        if event.end_of_stream:
            body += answer.finish()
            self.answer_seen = True
        elif not answer.ended:
            return [ev.PassPiece(body, False)] if body else []
        self._ended = True
        return [ev.PassPiece(body, True, self._metadata(answer))]

    def alarm(self) -> list[ev.Command]:
        """The time of the answer is over."""
        if self._answer is None or self._ended or self._closed:
            return []
        body = self._answer.expired()
        if not self._answer.ended:
            return []
        self._ended = True
        return [ev.PassPiece(body, True, self._metadata(self._answer))]

    def trailers(self, response: bool) -> list[ev.Command]:
        """Trailers end the answer where the body's last piece did not say so."""
        commands: list[ev.Command] = []
        if response and self._answer is not None:
            if self._ended:
                return []
            self.answer_seen = True
            if body := self._answer.finish():
                commands.append(ev.PassPiece(body, False, self._metadata(self._answer)))
        commands.append(ev.PassTrailers(response))
        return commands

    def closed(self, now: float) -> list[ev.Command]:
        """The stream is over, whatever ended it; told once, answered once."""
        if self._closed:
            return []
        self._closed, self.state = True, _State.OVER
        self.request = None
        if self._answer is not None:
            # The last event may lack its empty line.
            self._answer.finish()
        if (self.endpoint is None or not self.endpoint.generates) and self.reason is None:
            return []
        commands: list[ev.Command] = []
        if self.variant is not None:
            commands.append(ev.Release())
        commands.append(ev.Finished(self._record(now)))
        return commands

    def _record(self, now: float) -> ev.Record:
        reason, answer = self.reason, self._answer
        if reason in {None, Reason.OK} and answer is not None and answer.reader.error:
            reason = Reason.UPSTREAM_ERROR
        elif reason is None:
            # An SSE stream may be complete to its reader ([DONE]) before its bytes are over.
            complete = self.answer_seen or (answer is not None and (answer.reader.done or answer.ended))
            reason = Reason.OK if complete else Reason.ABORTED
        if not self.reached and reason in {Reason.OK, Reason.UPSTREAM_ERROR}:
            # Envoy answered by itself, before the slot: a body too slow, a time-out.
            reason = Reason.ABORTED
        return ev.Record(
            reason=reason,
            latency=now - self.started,
            tenant=self.tenant,
            class_=self.class_,
            model=self.model,
            pool=self.variant.pool if self.variant and self.reached else "",
            usage=self._counted(answer),
            rid=self.rid,
            truncated=answer.truncated or "" if answer is not None else "",
            unread=answer is not None and answer.unread,
        )

    def _counted(self, answer: Answer | None) -> Usage | None:
        if answer is None or self._plan is None or not self._plan.count or not self.reached:
            return None
        return answer.usage

    def _metadata(self, answer: Answer) -> dict[str, str]:
        usage = self._counted(answer)
        told: dict[str, str] = {}
        if usage is not None:
            numbers = {
                "input_tokens": usage.input_tokens,
                "output_tokens": usage.output_tokens,
                "cached_tokens": usage.cached_tokens,
                "reasoning_tokens": usage.reasoning_tokens,
            }
            told = {name: str(number) for name, number in numbers.items() if number is not None}
            if usage.estimated:
                told["estimated"] = "true"
        if answer.truncated is not None:
            told["truncated"] = answer.truncated.value
        return told

    def _rewritten(self, request: LlmRequest, variant: Variant) -> Rewritten | Refusal:
        """Change the request as the policy says, and lay down what is done with its answer."""
        output = self.policy.output
        cap = output.cap(self.class_)
        kinds = frozenset(engine.kind for engine in self.policy.pools[variant.pool].engines)
        actions = replace(
            self.actions,
            model=variant.model,
            cap=cap if self.actions.cap is None or (cap is not None and cap < self.actions.cap) else self.actions.cap,
            usage=output.count,
            continuous=kinds <= CONTINUOUS_KINDS,
        )
        rewritten = rewrite(request, actions)
        if isinstance(rewritten, Rewritten):
            caps = caps_of(cap, output.max_bytes, output.max_time)
            self._plan = plan_of(request, actions, kinds=kinds, caps=caps, id_=self.rid, count=output.count)
        return rewritten

    def _refuse(self, refusal: Refusal) -> list[ev.Command]:
        self.state = _State.OVER
        self.reason = refusal.reason
        return [ev.Refuse(answer(refusal, self.family, self.rid), f"seawall.{refusal.reason.value}")]

    def _body_cap(self) -> int:
        return self.route.body_max or self.policy.prefilter.body_cap(self.class_)

    def _too_large(self, size: int) -> Refusal:
        message = f"The request body has {size} bytes; allowed for class '{self.class_}' are {self._body_cap()}."
        return Refusal(Reason.TOO_LARGE, message, "body")

    def _variant(self, name: str) -> Variant | Refusal:
        models = self.policy.models
        if not models:
            if self.policy.default_pool is None:
                return Refusal(Reason.UNAVAILABLE, "No engines are configured here.", retry_after=5)
            return Variant("default", self.policy.default_pool, name)
        if not name:
            return Refusal(Reason.PARAMETER, "The parameter 'model' is required.", "model")
        model = models.get(name)
        if model is None:
            return Refusal(Reason.MODEL, f"The model '{name[:100]}' does not exist here.", "model")
        return model.variants[0]

    def _passing_pool(self) -> str | None:
        return self.policy.default_pool or next(iter(self.policy.pools), None)

    def _pool_headers(self, pool: str | None) -> dict[str, str]:
        headers = {CLASS_HEADER: self.class_}
        if pool is not None:
            headers[POOL_HEADER] = pool
        if self.tenant:
            headers[TENANT_HEADER] = self.tenant
        return headers
