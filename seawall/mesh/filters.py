"""The chain ext_authz, ratelimit, ext_proc, router; and what is taken off a request before any of them sees it."""

from seawall.mesh import names
from seawall.mesh.envoy_types import (
    core_v3,
    early_header_mutation_v3,
    ext_authz_v3,
    ext_proc_v3,
    hcm_v3,
    matcher_v3,
    mutation_rules_v3,
    ratelimit_config_v3,
    ratelimit_v3,
    router_v3,
    type_v3,
)
from seawall.mesh.message import extension, packed, seconds
from seawall.mesh.retries import gate_service
from seawall.mesh.settings import MeshSettings

UNAVAILABLE = type_v3.StatusCode.ServiceUnavailable
CALL_TIMEOUT_S = 2.0
"""Deadline of a side call. ratelimit's default is 20 ms and ext_proc's 200 ms: less than a pause of a busy worker."""


def early_mutations() -> list[core_v3.TypedExtensionConfig]:
    """Take our control headers off what a client sends, before the first route is chosen.

    ext_authz could remove them as well, but only after a route has been picked by them.
    """
    mutations = [
        mutation_rules_v3.HeaderMutation(
            remove_on_match=mutation_rules_v3.HeaderMutationRemoveOnMatch(
                # With `_` for `-` too: servers of the CGI kind read both as one header.
                key_matcher=matcher_v3.StringMatcher(
                    safe_regex=matcher_v3.RegexMatcher(regex="(?i)(x[-_]seawall[-_]|x[-_]vllm[-_]priority$).*")
                )
            )
        ),
    ]
    return [
        extension(
            "envoy.http.early_header_mutation.header_mutation",
            early_header_mutation_v3.HeaderMutation(mutations=mutations),
        )
    ]


def http_filters(settings: MeshSettings) -> list[hcm_v3.HttpFilter]:
    """Give the chain in its order."""
    return [
        hcm_v3.HttpFilter(name=names.AUTHZ, typed_config=packed(_ext_authz())),
        hcm_v3.HttpFilter(name=names.RATELIMIT, typed_config=packed(_ratelimit())),
        hcm_v3.HttpFilter(name=names.EXT_PROC, typed_config=packed(_ext_proc(settings))),
        hcm_v3.HttpFilter(name="envoy.filters.http.router", typed_config=packed(router_v3.Router())),
    ]


def _ext_authz() -> ext_authz_v3.ExtAuthz:
    """Headers only: a body over the buffer would be answered here, in plain text, before the service is asked."""
    return ext_authz_v3.ExtAuthz(
        transport_api_version=core_v3.ApiVersion.V3,
        grpc_service=gate_service(CALL_TIMEOUT_S),
        failure_mode_allow=False,
        # The default is 403, which no client retries.
        status_on_error=type_v3.HttpStatus(code=UNAVAILABLE),
        validate_mutations=True,
    )


def _ratelimit() -> ratelimit_v3.RateLimit:
    """Fail closed, as the filters on both sides do.

    What a lost store means is decided in the service (`store_loss`); an error that Envoy sees is a gate that isn't
    there. `enable_retry_after_header` is added in bootstrap.py: envoy-data-plane 2.2 doesn't know it yet.
    """
    return ratelimit_v3.RateLimit(
        domain=names.DOMAIN,
        timeout=seconds(CALL_TIMEOUT_S),
        failure_mode_deny=True,
        status_on_error=type_v3.HttpStatus(code=UNAVAILABLE),
        enable_x_ratelimit_headers=ratelimit_v3.RateLimitXRateLimitHeadersRfcVersion.DRAFT_VERSION_03,
        rate_limit_service=ratelimit_config_v3.RateLimitServiceConfig(
            transport_api_version=core_v3.ApiVersion.V3,
            # The filter's own timeout is the one that counts.
            grpc_service=gate_service(None),
        ),
    )


def _ext_proc(settings: MeshSettings) -> ext_proc_v3.ExternalProcessor:
    """Request headers only; everything else is switched on by the answer to them, where a request needs it.

    A base mode that asks for response headers would open a stream for each refusal of an earlier filter, and would
    keep Envoy's own 400 and 431 from ever reaching the client. `failure_mode_allow` would turn a time-out in the queue
    into a pass.
    """
    send, skip = ext_proc_v3.ProcessingModeHeaderSendMode.SEND, ext_proc_v3.ProcessingModeHeaderSendMode.SKIP
    return ext_proc_v3.ExternalProcessor(
        grpc_service=gate_service(None),
        failure_mode_allow=False,
        status_on_error=type_v3.HttpStatus(code=UNAVAILABLE),
        processing_mode=ext_proc_v3.ProcessingMode(
            request_header_mode=send,
            response_header_mode=skip,
            request_body_mode=ext_proc_v3.ProcessingModeBodySendMode.NONE,
            response_body_mode=ext_proc_v3.ProcessingModeBodySendMode.NONE,
            request_trailer_mode=skip,
            response_trailer_mode=skip,
        ),
        allow_mode_override=True,
        message_timeout=seconds(CALL_TIMEOUT_S),
        # The ceiling of override_message_timeout: one above it is ignored without a word.
        max_message_timeout=seconds(settings.max_hold_s),
        request_attributes=["request.id", "source.address"],
        metadata_options=ext_proc_v3.MetadataOptions(
            forwarding_namespaces=ext_proc_v3.MetadataOptionsMetadataNamespaces(untyped=[names.AUTHZ]),
            # Metadata in any other namespace is dropped without a word.
            receiving_namespaces=ext_proc_v3.MetadataOptionsMetadataNamespaces(untyped=[names.METADATA]),
        ),
    )
