"""The shape of the policy document: one model a section, each key with its default and the release that brought it.

A key is known since the first release unless its field says otherwise; `needs_of` finds the lowest release that
understands all keys a document uses. Names that refer to one another are checked in `checks`, not here.
"""

from collections.abc import Iterator
from functools import cache
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, model_validator
from pydantic.fields import FieldInfo

from seawall.policy.fields import (
    HEALTH_OFF,
    Affinity,
    Digest,
    Domain,
    EntryKey,
    EntryValue,
    Expires,
    Flag,
    HeaderName,
    HealthPath,
    Host,
    Items,
    Label,
    Metadata,
    ModelName,
    Name,
    Named,
    PoolName,
    Release,
    RetryOn,
    RuleList,
    Share,
    Text,
    Url,
    WindowLength,
    lasting,
    one_of,
    refused,
    sized,
    spanning,
    whole,
)

KIB = 1024
FIRST_RELEASE = "0.1"
DEFAULT_CLASSES = ("vip", "standard", "batch")
MAX_TOKENS = 2**31 - 1
HEALTH_PATH = "/health"
"""vLLM, SGLang, trtllm-serve, TGI and llama.cpp all say there that they are well. Triton's is /v2/health/ready."""
BodySize = Annotated[int, sized(1, 2**40, "1 byte or more")]
Tokens = Annotated[int, whole(1, MAX_TOKENS)]


def known_since(release: str) -> dict[str, Any]:
    """Mark a field with the release that brought it: `Field(json_schema_extra=known_since("0.3"))`."""
    return {"since": release}


def keys_of(model: type[BaseModel]) -> dict[str, FieldInfo]:
    """Fields of a section by the key that the document uses."""
    return _keys_of(model)


@cache
def _keys_of(model: type[BaseModel]) -> dict[str, FieldInfo]:
    return {info.alias or name: info for name, info in model.model_fields.items()}


def given(model: type[BaseModel], data: Any) -> dict[str, Any]:
    """Keys of a mapping that have a value, and those that the model does not know."""
    if data is None:
        return {}
    if not isinstance(data, dict):
        raise refused("is not a mapping", "a mapping of " + ", ".join(keys_of(model)))
    known = keys_of(model)
    return {k: v for k, v in data.items() if v is not None or k not in known}


class Section(BaseModel):
    """A mapping of the document: unknown keys are refused, a key without a value counts as absent."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)
    # A secret may stand at this place or in it: no mistake repeats a value from here.
    private: ClassVar[bool] = False
    # Keys that are passed over here when the context says `lenient`: they mean something on another level.
    misplaced: ClassVar[frozenset[str]] = frozenset()

    @model_validator(mode="before")
    @classmethod
    def _absent(cls, data: Any, info: ValidationInfo) -> Any:
        if isinstance(data, dict) and cls.misplaced and info.context:
            known = keys_of(cls)
            data = {k: v for k, v in data.items() if k in known or k not in cls.misplaced}
        return given(cls, data)


class Class(Section):
    """A priority class. Only its name and place count in this release."""


class Key(Section):
    """An API key of a tenant, known by its SHA-256 only."""

    private: ClassVar[bool] = True
    id: Name
    sha256: Digest
    expires: Expires | None = None


class Tenant(Section):
    """Who pays. Without `class` a tenant is of the lowest class."""

    private: ClassVar[bool] = True
    class_: Label | None = Field(default=None, alias="class")
    keys: Items[Key] = ()


class Callers(Section):
    """Who is calling."""

    anonymous: Text = "deny"
    key_headers: Items[HeaderName] = ("authorization", "x-api-key", "api-key")
    tenants: Named[Name, Tenant] = {}


class UserAgents(Section):
    """User-Agent patterns: globs and `~regular expressions`."""

    deny: Items[Text] = ()
    allow: Items[Text] = ()


class Headers(Section):
    """Bounds of request headers."""

    max: Annotated[int, sized(KIB, 96 * KIB, "1KiB to 96KiB")] = 32 * KIB


class Body(Section):
    """Bounds of request bodies."""

    max: BodySize = 16 * KIB
    per_class: Named[Label, BodySize] = {}


class Prefilter(Section):
    """What is refused before anyone asks who is calling."""

    user_agents: UserAgents = UserAgents()
    headers: Headers = Headers()
    body: Body = Body()
    unknown_paths: Annotated[Literal["deny", "pass"], one_of("deny", "pass")] = "deny"


_RULE_KEYS = frozenset(
    {
        *("domain", "descriptors", "key", "value", "rate_limit", "unit", "requests_per_unit", "unlimited", "name"),
        *("replaces", "shadow_mode", "quota_mode", "detailed_metric", "value_to_metric", "share_threshold", "metadata"),
    }
)
"""Keys of envoyproxy/ratelimit's files. It lets each of them stand on each level, and reads it on its own only."""
Requests = Annotated[int, whole(0, 2**32 - 1)]
AlgorithmName = Annotated[Literal["fixed", "sliding", "gcra"], one_of("fixed", "sliding", "gcra")]


class Replaced(Section):
    """A limit that doesn't count beside the one that replaces it."""

    misplaced = _RULE_KEYS
    name: EntryKey


class LimitWindow(Section):
    """One more window of a limit. Ours."""

    unit: Text = ""
    window: WindowLength | None = None
    requests_per_unit: Requests = 0
    algorithm: AlgorithmName = "fixed"
    burst: Annotated[int, whole(1, 2**32 - 1)] | None = None
    hidden: Flag = False


class RateLimit(LimitWindow):
    """`rate_limit` of a descriptor, as in envoyproxy/ratelimit, and what we add: `OUR_KEYS`."""

    misplaced = _RULE_KEYS
    unlimited: Flag = False
    name: Text = ""
    replaces: Items[Replaced] = ()
    also: Items[LimitWindow] = ()
    at_limit: Annotated[Literal["open", "exhausted"], one_of("open", "exhausted")] = "open"
    charge_refused: Flag | None = None


OUR_KEYS = ("window", "algorithm", "burst", "hidden", "also", "at_limit", "charge_refused")
"""Keys of `rate_limit` that envoyproxy/ratelimit doesn't know: refused where its files are read strictly."""


class Descriptor(Section):
    """One rule, and the rules below it."""

    misplaced = _RULE_KEYS
    key: EntryKey
    value: EntryValue = ""
    rate_limit: RateLimit | None = None
    descriptors: "Items[Descriptor]" = ()
    shadow_mode: Flag = False
    quota_mode: Flag = False
    detailed_metric: Flag = False
    value_to_metric: Flag = False
    share_threshold: Flag = False
    metadata: Metadata = {}


class LimitDomain(Section):
    """One document of envoyproxy/ratelimit: the rules of one domain."""

    misplaced = _RULE_KEYS
    domain: Domain
    descriptors: Items[Descriptor] = ()


class Health(Section):
    """How Envoy looks after an engine; `health: off`: not at all."""

    path: HealthPath = HEALTH_PATH
    interval: Annotated[float, lasting(0.5, 300, "500ms to 5m")] = 5.0
    timeout: Annotated[float, lasting(0.1, 60, "100ms to 60s")] = 3.0
    unhealthy_after: Annotated[int, whole(1, 100)] = 3
    healthy_after: Annotated[int, whole(1, 100)] = 1

    @model_validator(mode="before")
    @classmethod
    def _absent(cls, data: Any) -> Any:
        if isinstance(data, str):
            if data != HEALTH_OFF:
                allowed = f"{HEALTH_OFF}, or a mapping of {', '.join(keys_of(cls))}"
                raise refused("is not allowed here", allowed, options=(HEALTH_OFF,))
            # No interval that anyone could write.
            return {"interval": 0.0}
        return given(cls, data)

    @property
    def off(self) -> bool:
        """Whether Envoy does not look."""
        return self.interval == 0.0


class Engine(Section):
    """One inference server."""

    url: Url = Field(json_schema_extra={"private": True})
    kind: Annotated[
        Literal["vllm", "sglang", "trtllm", "tgi", "llamacpp"], one_of("vllm", "sglang", "trtllm", "tgi", "llamacpp")
    ] = "vllm"
    weight: Annotated[int, whole(1, 1000)] = 1
    health: Health = Health()


class Concurrency(Section):
    """How many requests of a pool may be in flight."""

    law: Annotated[Literal["fixed"], one_of("fixed")] = "fixed"
    max: Annotated[int, whole(1, 1_000_000)] = 128


class Pool(Section):
    """A group of engines. Without `engines`: all of them."""

    engines: Items[Label] | None = None
    affinity: Affinity = "none"
    concurrency: Concurrency = Concurrency()


class Variant(Section):
    """One way to serve a model. Defaults: the default pool, the model's own name."""

    pool: PoolName | None = None
    name: ModelName | None = None


class Model(Section):
    """A model that clients may ask for. Without `variants`: one, in the default pool."""

    variants: Named[Label, Variant] = {}


class Output(Section):
    """Caps on answers, and whether their tokens are counted."""

    max_tokens: Tokens | None = None
    per_class: Named[Label, Tokens] = {}
    max_bytes: BodySize | None = None
    max_time: Annotated[float, lasting(1.0, 86400.0, "1s to 24h")] | None = None
    usage: Annotated[Literal["count", "ignore"], one_of("count", "ignore")] = "count"


class Retries(Section):
    """When Envoy asks another engine. `attempts` counts tries after the first."""

    attempts: Annotated[int, whole(0, 10)] = 2
    on: Items[RetryOn] = ("connect-failure", "refused-stream", "reset-before-request", "503")
    backoff: Annotated[tuple[float, float], spanning(0.001, 60, "1ms to 60s")] = (0.1, 2.0)
    retry_after: Annotated[float, lasting(0, 60, "0s to 60s")] = 5.0
    budget: Share = 0.2


class Profile(Section):
    """What routes of Envoy that name it, and requests for its hosts, have instead of the policy's own."""

    hosts: Items[Host] = ()
    class_: Label | None = Field(default=None, alias="class")
    body_max: BodySize | None = None
    unknown_paths: Annotated[Literal["deny", "pass"], one_of("deny", "pass")] | None = None


class StoreLoss(Section):
    """What happens while the store is away."""

    limits: Annotated[Literal["share", "allow", "deny"], one_of("share", "allow", "deny")] = "share"
    start: Annotated[Literal["wait", "serve"], one_of("wait", "serve")] = "wait"


class Document(Section):
    """The whole policy document."""

    seawall: Annotated[int, whole(1, 1)] = 1
    needs: Release | None = None
    classes: Named[Label, Class] = {name: Class() for name in DEFAULT_CLASSES}
    callers: Callers = Callers()
    prefilter: Prefilter = Prefilter()
    limits: RuleList[LimitDomain] = ()
    engines: Named[Label, Engine] = {}
    pools: Named[PoolName, Pool] = {}
    models: Named[Name, Model] = {}
    retries: Retries = Retries()
    profiles: Named[Label, Profile] = {}
    output: Output = Output()
    store_loss: StoreLoss = StoreLoss()


def needs_of(document: Document) -> str:
    """Lowest release that understands every key of the document."""
    return max(_releases(document), key=release_key)


def release_key(release: str) -> tuple[int, ...]:
    """Order of releases: 0.10 is after 0.9, and 0.1 equals 0.1.0."""
    parts = [int(digits) for digits in release.split(".")[:3]]
    return tuple(parts + [0] * (3 - len(parts)))


def _releases(value: Any) -> Iterator[str]:
    yield FIRST_RELEASE
    if isinstance(value, Section):
        for name, info in type(value).model_fields.items():
            if name in value.model_fields_set:
                extra = info.json_schema_extra
                yield str(extra.get("since", FIRST_RELEASE)) if isinstance(extra, dict) else FIRST_RELEASE
                yield from _releases(getattr(value, name))
    elif isinstance(value, dict | tuple):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _releases(item)
