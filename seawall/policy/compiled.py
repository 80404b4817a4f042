"""The compiled, immutable policy: what requests are decided by. Compiled once, swapped whole, shared by them all."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from seawall.caller.keys import Callers
from seawall.caller.prefilter import Prefilter
from seawall.limits.descriptor import Node


@dataclass(frozen=True, slots=True)
class Engine:
    """One inference server. `host` and `port` come from `url`; `tls` when it is https."""

    name: str
    url: str
    host: str
    port: int
    tls: bool
    kind: str


@dataclass(frozen=True, slots=True)
class Pool:
    """A group of engines with one limit on requests in flight."""

    name: str
    engines: tuple[Engine, ...]
    max_in_flight: int


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
    """Caps on generated tokens; None is no cap."""

    max_tokens: int | None
    per_class: Mapping[str, int]

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
    compiled: a document without pools gets the pool `default` of the engines that the settings name.
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
