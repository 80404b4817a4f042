"""Both ends of one subscription by xDS, state of the world: what comes in, what is answered, which rules are in force.

Plain calls over bytes; no connection, no clock. The protocol is Envoy's (api-docs/xds_protocol), read as
envoyproxy/ratelimit does: a response holds all resources, and what is not in it any more is gone.
"""

from dataclasses import dataclass

from seawall.policy.mistake import PolicyError
from seawall.policy.rule_files import RuleSet, compile_resources
from seawall.serve import xds_wire
from seawall.serve.xds_source import XdsSource


@dataclass(frozen=True, slots=True)
class Heard:
    """One response, judged. `error` is why it is refused; without one its rules are `rules`."""

    answer: bytes | None
    """The ACK or NACK; None for what was never asked for."""
    version: str
    resources: int = 0
    rules: RuleSet | None = None
    error: str = ""
    same: bool = False
    """It says what is in force already."""


class Session:
    """What is accepted lives longer than a stream: `opened` begins another one."""

    def __init__(self, source: XdsSource):
        self._source = source
        self.version = ""
        """That was accepted last."""
        self._accepted: tuple[tuple[str, bytes], ...] | None = None
        self._resources: tuple[tuple[str, bytes], ...] = ()

    def opened(self) -> bytes:
        """The request that a stream begins with: all resources, whatever we have.

        The last version is not told, although the protocol lets a client do so: a server that was restarted may count its
        versions anew, take an old one for its present one, and send nothing.
        """
        return xds_wire.request(self._source)

    def heard(self, data: bytes) -> Heard:
        """Judge a response; `accept` makes it the one in force. Raises ValueError for what is none."""
        response = xds_wire.response(data)
        if response.type and response.type != xds_wire.TYPE:
            return Heard(None, response.version, error=f"type '{response.type[:200]}' was not asked for")
        answer = xds_wire.request(self._source, version=response.version, nonce=response.nonce)
        count = len(response.resources)
        if response.resources == self._accepted:
            return Heard(answer, response.version, count, same=True)
        try:
            rules = rules_of(data, merge=self._source.merge)
        except ValueError as e:
            refused = xds_wire.request(self._source, version=self.version, nonce=response.nonce, refusal=str(e))
            return Heard(refused, response.version, count, error=str(e))
        self._resources = response.resources
        return Heard(answer, response.version, count, rules)

    def accept(self, heard: Heard) -> None:
        """Note that the rules of the response heard last are in force."""
        self.version = heard.version
        if not heard.same:
            self._accepted = self._resources


def rules_of(data: bytes, *, merge: bool) -> RuleSet:
    """Rules of a response; raises ValueError with every mistake, the resource named."""
    try:
        return compile_resources(xds_wire.resources(xds_wire.response(data)), merge=merge)
    except (PolicyError, xds_wire.BadResource) as e:
        raise ValueError(str(e)) from None
