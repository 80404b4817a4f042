"""The compiled, immutable policy: what requests are decided by. Compiled once, swapped whole, shared by them all."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from seawall.caller.keys import Callers
from seawall.caller.prefilter import Prefilter
from seawall.limits.descriptor import Node

if TYPE_CHECKING:
    # Loads Hyperscan, which only a policy with rules needs.
    from seawall.scan.sides import Scanning


@dataclass(frozen=True, slots=True)
class HealthCheck:
    """How Envoy looks after an engine: GET `path`; times in seconds."""

    path: str
    interval_s: float = 5.0
    timeout_s: float = 3.0
    unhealthy_after: int = 3
    healthy_after: int = 1


@dataclass(frozen=True, slots=True)
class Engine:
    """One inference server. `host` and `port` come from `url`; `tls` when it is https; `health` None: not looked at."""

    name: str
    url: str
    host: str
    port: int
    tls: bool
    kind: str
    weight: int = 1
    health: HealthCheck | None = None


@dataclass(frozen=True, slots=True)
class Pool:
    """A group of engines with one limit on requests in flight. `affinity`: `none`, `tenant` or `header:NAME`."""

    name: str
    engines: tuple[Engine, ...]
    max_in_flight: int
    affinity: str = "none"


@dataclass(frozen=True, slots=True)
class Retries:
    """When Envoy asks another engine.

    `attempts` counts tries after the first. `on` holds Envoy's conditions and status codes. `retry_after_s`: a longer
    Retry-After of an engine is not waited for. `budget`: share of a pool's slots that may be in a retry at one time.
    """

    attempts: int = 2
    on: tuple[str, ...] = ("connect-failure", "refused-stream", "reset-before-request", "503")
    backoff_s: tuple[float, float] = (0.1, 2.0)
    retry_after_s: float = 5.0
    budget: float = 0.2


@dataclass(frozen=True, slots=True)
class Profile:
    """What a route of Envoy has in place of the policy's own; None: the policy's own. Sizes are bytes.

    Requests for `hosts` have it without a word in anyone's Envoy configuration: their routes are ours.
    """

    class_: str | None = None
    body_max: int | None = None
    unknown_paths: Literal["deny", "pass"] | None = None
    hosts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Variant:
    """One way to serve a model: the pool, and the name that its engines know the model by."""

    name: str
    pool: str
    model: str


@dataclass(frozen=True, slots=True)
class Model:
    """A model that clients may ask for. `variants` is in the policy's order; the first one is used."""

    name: str
    variants: tuple[Variant, ...]


@dataclass(frozen=True, slots=True)
class Output:
    """Caps on answers; None is no cap. `max_bytes` are of generated text, `max_time` is in seconds.

    `count`: tokens of answers are to be known.
    """

    max_tokens: int | None
    per_class: Mapping[str, int]
    max_bytes: int | None = None
    max_time: float | None = None
    count: bool = True

    def cap(self, class_: str) -> int | None:
        """Largest number of output tokens that a request of this class may ask for."""
        return self.per_class.get(class_, self.max_tokens)


@dataclass(frozen=True, slots=True)
class StoreLoss:
    """What happens while the store is away. `start: serve` lets a worker start without it."""

    limits: Literal["share", "allow", "deny"]
    start: Literal["wait", "serve"]


@dataclass(frozen=True, slots=True)
class Policy:
    """Everything that a request is decided by.

    `digest` is the SHA-256 of the document (hex). `limits` holds one tree per domain. `pools` is never empty once
    compiled: a document without pools gets the pool `default` of the engines that the settings name. `scan` is None
    without rules.
    """

    digest: str
    classes: tuple[str, ...]
    callers: Callers
    prefilter: Prefilter
    limits: Mapping[str, Node]
    engines: Mapping[str, Engine]
    pools: Mapping[str, Pool]
    models: Mapping[str, Model]
    default_pool: str | None
    output: Output
    store_loss: StoreLoss
    retries: Retries = Retries()
    profiles: Mapping[str, Profile] = field(default_factory=dict)
    scan: "Scanning | None" = None
