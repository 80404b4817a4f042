"""The chain ext_authz, ratelimit, ext_proc, router; and what is taken off a request before any of them sees it."""

from envoy_data_plane.envoy.config.common.mutation_rules.v3 import (
    HeaderMutation,
    HeaderMutationRemoveOnMatch,
)
from envoy_data_plane.envoy.config.core.v3 import ApiVersion, TypedExtensionConfig
from envoy_data_plane.envoy.config.ratelimit.v3 import RateLimitServiceConfig
from envoy_data_plane.envoy.extensions.filters.http.ext_authz.v3 import ExtAuthz
from envoy_data_plane.envoy.extensions.filters.http.ext_proc.v3 import (
    ExternalProcessor,
    MetadataOptions,
    MetadataOptionsMetadataNamespaces,
    ProcessingMode,
    ProcessingModeBodySendMode,
    ProcessingModeHeaderSendMode,
)
from envoy_data_plane.envoy.extensions.filters.http.ratelimit.v3 import (
    RateLimit,
    RateLimitXRateLimitHeadersRfcVersion,
)
from envoy_data_plane.envoy.extensions.filters.http.router.v3 import Router
from envoy_data_plane.envoy.extensions.filters.network.http_connection_manager.v3 import HttpFilter
from envoy_data_plane.envoy.extensions.http.early_header_mutation.header_mutation.v3 import (
    HeaderMutation as EarlyHeaderMutation,
)
from envoy_data_plane.envoy.type.matcher.v3 import StringMatcher
from envoy_data_plane.envoy.type.v3 import HttpStatus, StatusCode

from seawall.mesh import names
from seawall.mesh.message import extension, packed, seconds
from seawall.mesh.retries import gate_service
from seawall.mesh.settings import MeshSettings

UNAVAILABLE = StatusCode.ServiceUnavailable
CALL_TIMEOUT_S = 2.0
"""Deadline of a side call. ratelimit's default is 20 ms and ext_proc's 200 ms: less than a pause of a busy worker."""


def early_mutations() -> list[TypedExtensionConfig]:
    """Take our control headers off what a client sends, before the first route is chosen.

    ext_authz could remove them as well, but only after a route has been picked by them.
    """
    mutations = [
        HeaderMutation(
            remove_on_match=HeaderMutationRemoveOnMatch(
                key_matcher=StringMatcher(prefix=names.CONTROL_PREFIX, ignore_case=True)
            )
        ),
        HeaderMutation(remove=names.PRIORITY_HEADER),
    ]
    return [
        extension(
            "envoy.http.early_header_mutation.header_mutation",
            EarlyHeaderMutation(mutations=mutations),
        )
    ]


def http_filters(settings: MeshSettings) -> list[HttpFilter]:
    """Give the chain in its order."""
    return [
        HttpFilter(name=names.AUTHZ, typed_config=packed(_ext_authz())),
        HttpFilter(name=names.RATELIMIT, typed_config=packed(_ratelimit())),
        HttpFilter(name=names.EXT_PROC, typed_config=packed(_ext_proc(settings))),
        HttpFilter(name="envoy.filters.http.router", typed_config=packed(Router())),
    ]


def _ext_authz() -> ExtAuthz:
    """Headers only: a body over the buffer would be answered here, in plain text, before the service is asked."""
    return ExtAuthz(
        transport_api_version=ApiVersion.V3,
        grpc_service=gate_service(CALL_TIMEOUT_S),
        failure_mode_allow=False,
        # The default is 403, which no client retries.
        status_on_error=HttpStatus(code=UNAVAILABLE),
        validate_mutations=True,
    )


def _ratelimit() -> RateLimit:
    """Fail closed, as the filters on both sides do.

    What a lost store means is decided in the service (`store_loss`); an error that Envoy sees is a gate that isn't
    there. `enable_retry_after_header` is added in bootstrap.py: envoy-data-plane 2.2 doesn't know it yet.
    """
    return RateLimit(
        domain=names.DOMAIN,
        timeout=seconds(CALL_TIMEOUT_S),
        failure_mode_deny=True,
        status_on_error=HttpStatus(code=UNAVAILABLE),
        enable_x_ratelimit_headers=RateLimitXRateLimitHeadersRfcVersion.DRAFT_VERSION_03,
        rate_limit_service=RateLimitServiceConfig(
            transport_api_version=ApiVersion.V3,
            # The filter's own timeout is the one that counts.
            grpc_service=gate_service(None),
        ),
    )


def _ext_proc(settings: MeshSettings) -> ExternalProcessor:
    """Request headers only; everything else is switched on by the answer to them, where a request needs it.

    A base mode that asks for response headers would open a stream for each refusal of an earlier filter, and would
    keep Envoy's own 400 and 431 from ever reaching the client. `failure_mode_allow` would turn a time-out in the queue
    into a pass.
    """
    send, skip = ProcessingModeHeaderSendMode.SEND, ProcessingModeHeaderSendMode.SKIP
    return ExternalProcessor(
        grpc_service=gate_service(None),
        failure_mode_allow=False,
        status_on_error=HttpStatus(code=UNAVAILABLE),
        processing_mode=ProcessingMode(
            request_header_mode=send,
            response_header_mode=skip,
            request_body_mode=ProcessingModeBodySendMode.NONE,
            response_body_mode=ProcessingModeBodySendMode.NONE,
            request_trailer_mode=skip,
            response_trailer_mode=skip,
        ),
        allow_mode_override=True,
        message_timeout=seconds(CALL_TIMEOUT_S),
        # The ceiling of override_message_timeout: one above it is ignored without a word.
        max_message_timeout=seconds(settings.max_hold_s),
        request_attributes=["request.id", "source.address"],
        metadata_options=MetadataOptions(
            forwarding_namespaces=MetadataOptionsMetadataNamespaces(untyped=[names.AUTHZ]),
            # Metadata in any other namespace is dropped without a word.
            receiving_namespaces=MetadataOptionsMetadataNamespaces(untyped=[names.METADATA]),
        ),
    )
