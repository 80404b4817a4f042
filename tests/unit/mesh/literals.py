"""A policy in literals: what the mesh reads of one is its pools."""

from collections.abc import Mapping

from seawall.caller.agents import AgentRules
from seawall.caller.keys import Callers
from seawall.caller.prefilter import Prefilter
from seawall.policy.compiled import Engine, Output, Policy, Pool, StoreLoss


def engine(port: int, host: str = "127.0.0.1", *, tls: bool = False) -> Engine:
    scheme = "https" if tls else "http"
    return Engine(f"{host}-{port}", f"{scheme}://{host}:{port}", host, port, tls, "vllm")


def policy(pools: Mapping[str, tuple[Engine, ...]]) -> Policy:
    return Policy(
        digest="d" * 64,
        classes=("vip",),
        callers=Callers(None, (), {}, {}),
        prefilter=Prefilter(AgentRules(), 65536, 16384, {}, "deny"),
        limits={},
        engines={e.name: e for engines in pools.values() for e in engines},
        pools={name: Pool(name, engines, 8) for name, engines in pools.items()},
        models={},
        default_pool=None,
        output=Output(None, {}),
        store_loss=StoreLoss("share", "wait"),
    )
