"""A policy in literals: what the mesh reads of one is its pools."""

from collections.abc import Mapping

from seawall.caller.agents import AgentRules
from seawall.caller.keys import Callers
from seawall.caller.prefilter import Prefilter
from seawall.policy.compiled import Engine, HealthCheck, Output, Policy, Pool, Retries, StoreLoss

HEALTH = HealthCheck("/health")
RETRIES = Retries()


def engine(
    port: int, host: str = "127.0.0.1", *, tls: bool = False, weight: int = 1, health: HealthCheck | None = HEALTH
) -> Engine:
    scheme = "https" if tls else "http"
    return Engine(f"{host}-{port}", f"{scheme}://{host}:{port}", host, port, tls, "vllm", weight, health)


def policy(
    pools: Mapping[str, tuple[Engine, ...]], *, affinity: str = "none", retries: Retries = RETRIES, slots: int = 8
) -> Policy:
    return Policy(
        digest="d" * 64,
        classes=("vip",),
        callers=Callers(None, (), {}, {}),
        prefilter=Prefilter(AgentRules(), 65536, 16384, {}, "deny"),
        limits={},
        engines={e.name: e for engines in pools.values() for e in engines},
        pools={name: Pool(name, engines, slots, affinity) for name, engines in pools.items()},
        models={},
        default_pool=None,
        output=Output(None, {}),
        store_loss=StoreLoss("share", "wait"),
        retries=retries,
    )
