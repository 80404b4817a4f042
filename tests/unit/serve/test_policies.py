"""The key of `seawall up`'s own readiness request."""

import hashlib

from seawall.caller.keys import Caller
from seawall.decision import Reason, Refusal
from seawall.policy.compile import compile_policy
from seawall.serve.policies import PROBE_TENANT, with_probe

KEY = "sk-probe"
DIGEST = hashlib.sha256(KEY.encode()).hexdigest()
OWN = hashlib.sha256(b"sk-own").hexdigest()
POLICY = compile_policy(
    f"classes: {{vip: , batch: }}\ncallers: {{tenants: {{acme: {{class: vip, keys: [{{id: own, sha256: {OWN}}}]}}}}}}"
)


def test_probe() -> None:
    """The probe is a tenant of its own in the lowest class; every other caller stays who it was."""
    policy = with_probe(POLICY, DIGEST)
    assert policy.callers.identify({"x-api-key": KEY}, 0) == Caller(PROBE_TENANT, "batch", PROBE_TENANT)
    assert policy.callers.identify({"x-api-key": "sk-own"}, 0) == Caller("acme", "vip", "own")
    assert policy.callers.tenants == POLICY.callers.tenants


def test_the_policy_itself_is_not_changed() -> None:
    """Only the policy that was asked for knows the probe."""
    with_probe(POLICY, DIGEST)
    refused = POLICY.callers.identify({"x-api-key": KEY}, 0)
    assert isinstance(refused, Refusal)
    assert refused.reason is Reason.INVALID_KEY


def test_without_probe() -> None:
    """Without a probe's key the policy is the same."""
    assert with_probe(POLICY, None) is POLICY
