"""Settings of Envoy's routes, read once for each policy and each set of values."""

from collections.abc import Iterable, Sequence

from seawall.policy.compiled import Policy, Profile
from seawall.policy.route import OWN, PREFIX, Said, Wrong, route_of
from seawall.telemetry.logfmt import Log
from seawall.telemetry.metrics import Metrics

MOST_POLICIES = 4
"""That are in use at one time: the current one, a canary, and those of requests that began before."""
MOST_ROUTES = 256
"""Sets of values that are remembered for a policy. They come from Envoy's configuration; whoever sends others in
numbers gets no memory for them."""


class Routes:
    """Gives the settings of a request's route. What is wrong is counted each time and logged once."""

    def __init__(self, service: str, max_body: int, metrics: Metrics, log: Log):
        self._service = service
        self._max_body = max_body
        self._metrics = metrics
        self._log = log
        self._known: list[tuple[Policy, dict[Said, tuple[Profile, Sequence[Wrong]]]]] = []
        self._told: set[Wrong] = set()

    def of(self, policy: Policy, told: Iterable[tuple[str, str]]) -> Profile:
        """Settings of a route by the keys and values that came with a call; others than ours are passed over."""
        said = tuple([item for item in told if item[0].startswith(PREFIX)])
        if not said:
            return OWN
        known = self._of_policy(policy)
        found = known.get(said)
        if found is None:
            found = route_of(policy, said, self._max_body)
            if len(known) >= MOST_ROUTES:
                known.clear()
            known[said] = found
        profile, wrong = found
        for key, why in wrong:
            self._metrics.count("seawall_route_settings_refused_total", key)
            self._tell(key, why)
        return profile

    def _of_policy(self, policy: Policy) -> dict[Said, tuple[Profile, Sequence[Wrong]]]:
        for known, routes in self._known:
            if known is policy:
                return routes
        made: dict[Said, tuple[Profile, Sequence[Wrong]]] = {}
        self._known = [(policy, made), *self._known[: MOST_POLICIES - 1]]
        return made

    def _tell(self, key: str, why: str) -> None:
        if (key, why) in self._told or len(self._told) >= MOST_ROUTES:
            return
        self._told.add((key, why))
        self._log("warn", "a route's setting is passed over", service=self._service, setting=key, why=why)
