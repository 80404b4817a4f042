"""A document becomes the Policy that requests are decided by."""

import hashlib
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, TypeVar

import re2

from seawall.caller.agents import AgentRules, compile_agents
from seawall.caller.keys import Callers, Key, Tenant
from seawall.caller.prefilter import Prefilter
from seawall.limits.build import Rule, build, limits_of
from seawall.limits.descriptor import Limit, Node
from seawall.limits.window import Algorithm, Unit, Window
from seawall.policy.checks import DEFAULT_POOL, DENY, Checks
from seawall.policy.compiled import (
    Engine,
    HealthCheck,
    Model,
    Output,
    Policy,
    Pool,
    Profile,
    Retries,
    StoreLoss,
    Variant,
)
from seawall.policy.document import Descriptor, Document, Health, LimitWindow, RateLimit
from seawall.policy.document import Engine as EngineSection
from seawall.policy.fields import parse_url
from seawall.policy.load import MAX_BODY, Loaded, load
from seawall.policy.mistake import PolicyError
from seawall.policy.rules import CHARGED_KEYS, OUR_DOMAIN, who_charges
from seawall.policy.scanning import compile_scan
from seawall.scan.rules import RuleError

if TYPE_CHECKING:
    from seawall.scan.sides import Scanning

K = TypeVar("K")
V = TypeVar("V")


def compile_policy(
    text: str,
    *,
    file: str = "policy.yaml",
    upstreams: Sequence[tuple[str, str]] = (),
    max_body: int = MAX_BODY,
) -> Policy:
    """Read, check and compile a document.

    `upstreams` are (url, kind) of engines that the settings name; they become `engine-0`, `engine-1`, … of a document
    that has no `engines`. `max_body` is in bytes. Raises PolicyError with every mistake; ValueError for an upstream
    whose url is none.
    """
    return build_policy(load(text, file=file, max_body=max_body), digest_of(text), upstreams)


def digest_of(text: str) -> str:
    """SHA-256 of a document, hex: the same text is the same policy."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def build_policy(loaded: Loaded, digest: str, upstreams: Sequence[tuple[str, str]] = ()) -> Policy:
    """Compile a valid document. Raises PolicyError only where patterns are more than RE2 takes."""
    document = loaded.document
    engines = _engines(document, upstreams)
    pools = _pools(document, engines)
    default = next(iter(pools)) if len(pools) == 1 else DEFAULT_POOL if DEFAULT_POOL in pools else None
    return Policy(
        digest=digest,
        classes=tuple(document.classes),
        callers=_callers(document),
        prefilter=_prefilter(loaded),
        limits=_fixed({limits.domain: domain_tree(limits.descriptors) for limits in document.limits}),
        engines=_fixed(engines),
        pools=_fixed(pools),
        models=_fixed(_models(document, default)),
        default_pool=default,
        output=_output(document),
        store_loss=StoreLoss(document.store_loss.limits, document.store_loss.start),
        retries=_retries(document),
        profiles=_fixed(
            {name: Profile(p.class_, p.body_max, p.unknown_paths, p.hosts) for name, p in document.profiles.items()}
        ),
        scan=_scan(loaded),
    )


def _output(document: Document) -> Output:
    output = document.output
    return Output(
        output.max_tokens, _fixed(output.per_class), output.max_bytes, output.max_time, output.usage == "count"
    )


def _fixed(mapping: Mapping[K, V]) -> Mapping[K, V]:
    return MappingProxyType(dict(mapping))


def _callers(document: Document) -> Callers:
    lowest = list(document.classes)[-1]
    tenants: dict[str, Tenant] = {}
    keys: dict[bytes, Key] = {}
    for name, section in document.callers.tenants.items():
        tenant = tenants[name] = Tenant(name, section.class_ or lowest)
        for key in section.keys:
            digest = bytes.fromhex(key.sha256)
            keys[digest] = Key(key.id, tenant, digest, key.expires)
    anonymous = document.callers.anonymous
    return Callers(
        anonymous=None if anonymous == DENY else tenants[anonymous],
        key_headers=document.callers.key_headers,
        tenants=_fixed(tenants),
        keys=_fixed(keys),
    )


def _prefilter(loaded: Loaded) -> Prefilter:
    section = loaded.document.prefilter
    return Prefilter(
        agents=_agents(loaded),
        headers_max=section.headers.max,
        body_max=section.body.max,
        body_per_class=_fixed(section.body.per_class),
        unknown_paths=section.unknown_paths,
    )


def _agents(loaded: Loaded) -> AgentRules:
    rules = loaded.document.prefilter.user_agents
    try:
        return compile_agents(rules.deny, rules.allow)
    except (ValueError, re2.error):
        # Each pattern alone was read by `Checks.agents`.
        checks = Checks(loaded.root, loaded.file)
        why = "the patterns together are too large for RE2"
        raise PolicyError([checks.mistake(("prefilter", "user_agents"), why, key=True)]) from None


def _scan(loaded: Loaded) -> "Scanning | None":
    try:
        return compile_scan(loaded.document)
    except RuleError as e:
        # Each pattern alone was read by `scan_mistakes`.
        checks = Checks(loaded.root, loaded.file)
        raise PolicyError([checks.mistake(("scan", "rules"), str(e), key=True)]) from None


def domain_tree(descriptors: Sequence[Descriptor]) -> Node:
    """Tree of one domain's rules."""
    return build([_rule(descriptor) for descriptor in descriptors])


def _rule(descriptor: Descriptor) -> Rule:
    return Rule(
        key=descriptor.key,
        value=descriptor.value,
        limit=_limit(descriptor, descriptor.rate_limit) if descriptor.rate_limit is not None else None,
        below=tuple(_rule(d) for d in descriptor.descriptors),
        share=descriptor.share_threshold,
        value_named=descriptor.value_to_metric,
        detailed=descriptor.detailed_metric,
    )


def _limit(descriptor: Descriptor, section: RateLimit) -> Limit:
    windows = () if section.unlimited else (_window(section), *map(_window, section.also))
    plain = len(windows) == 1 and windows[0].algorithm is Algorithm.FIXED
    return Limit(
        label="",
        windows=windows,
        name=section.name,
        replaces=frozenset(replaced.name for replaced in section.replaces),
        shadow=descriptor.shadow_mode,
        quota=descriptor.quota_mode,
        charge_refused=plain if section.charge_refused is None else section.charge_refused,
        exhausted=section.at_limit == "exhausted",
        metadata=descriptor.metadata,
    )


def _window(section: LimitWindow) -> Window:
    algorithm = Algorithm(section.algorithm)
    length = section.window or Unit[section.unit.upper()].seconds
    burst = (section.burst or section.requests_per_unit) if algorithm is Algorithm.GCRA else 0
    return Window(algorithm, section.requests_per_unit, length, burst, section.hidden)


def _engines(document: Document, upstreams: Sequence[tuple[str, str]]) -> dict[str, Engine]:
    given = document.engines or {
        f"engine-{i}": EngineSection.model_construct(url=url, kind=kind) for i, (url, kind) in enumerate(upstreams)
    }
    engines: dict[str, Engine] = {}
    for name, section in given.items():
        scheme, host, port = parse_url(section.url)
        engines[name] = Engine(
            name=name,
            url=section.url.rstrip("/"),
            host=host,
            port=port,
            tls=scheme == "https",
            kind=section.kind,
            weight=section.weight,
            health=_health(section.health),
        )
    return engines


def _health(section: Health) -> HealthCheck | None:
    if section.off:
        return None
    return HealthCheck(section.path, section.interval, section.timeout, section.unhealthy_after, section.healthy_after)


def _pools(document: Document, engines: Mapping[str, Engine]) -> dict[str, Pool]:
    everyone = tuple(engines.values())
    sections = document.pools or Document.model_validate({"pools": {DEFAULT_POOL: {}}}).pools
    return {
        name: Pool(
            name,
            everyone if section.engines is None else tuple(engines[e] for e in section.engines),
            section.concurrency.max,
            section.affinity,
        )
        for name, section in sections.items()
    }


def _retries(document: Document) -> Retries:
    section = document.retries
    return Retries(section.attempts, section.on, section.backoff, section.retry_after, section.budget)


def _models(document: Document, default: str | None) -> dict[str, Model]:
    models: dict[str, Model] = {}
    for name, section in document.models.items():
        variants = [
            Variant(variant, pool, choice.name or name)
            for variant, choice in section.variants.items()
            if (pool := choice.pool or default) is not None
        ]
        if not variants and default is not None:
            variants = [Variant("full", default, name)]
        models[name] = Model(name, tuple(variants))
    return models


def charged_by(document: Document) -> list[tuple[str, str]]:
    """Say of each limit (`domain: label`) who charges it."""
    return [
        (f"{limits.domain}: {limit.label}", who_charges(limits.domain, keys))
        for limits in document.limits
        for keys, limit in limits_of(domain_tree(limits.descriptors))
    ]


def descriptor_keys(*policies: Policy) -> list[tuple[str, ...]]:
    """Key sequences of the limits that our Envoy configuration has to send descriptors for, shortest first.

    Of several policies (the current one and a canary) all: a version that has no limit for a descriptor lets it through.
    """
    trees = [tree for policy in policies if (tree := policy.limits.get(OUR_DOMAIN)) is not None]
    found = {keys for tree in trees for keys, _ in limits_of(tree)}
    return sorted((keys for keys in found if set(keys) <= set(CHARGED_KEYS)), key=lambda keys: (len(keys), keys))
