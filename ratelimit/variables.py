"""Every variable of envoyproxy/ratelimit, and what it is to us: the table in docs/ratelimit.md is held against this."""

from typing import NamedTuple

HONOURED, DIFFERS, IGNORED, REFUSED = "honoured", "differs", "ignored", "refused"


class Variable(NamedTuple):
    """`told` is the difference, or why it does nothing; values in `harmless` are passed over without a warning."""

    kind: str
    told: str = ""
    harmless: tuple[str, ...] = ()


_OFF = ("false", "0", "f", "F", "FALSE", "False")
_POOL = "each worker has one pipelined connection to each node"
_MEMCACHE = "there is no memcached here"
_STATSD = "statsd is not there in this release; /metrics and /stats have the same numbers"
_TRACING = "there are no traces in this release"
_SECOND = "REDIS_PERSECOND=true is refused"
_STARTUP = "the ports are open at once; Redis is asked again until it answers"

VARIABLES: dict[str, Variable] = {
    **dict.fromkeys(("HOST", "PORT", "GRPC_HOST", "GRPC_PORT", "GRPC_UDS", "DEBUG_PORT"), Variable(HONOURED)),
    "DEBUG_HOST": Variable(DIFFERS, "the default is 127.0.0.1, not all interfaces"),
    "GRPC_MAX_CONNECTION_AGE": Variable(DIFFERS, "give or take a tenth"),
    "GRPC_MAX_CONNECTION_AGE_GRACE": Variable(IGNORED, "calls of an old connection end by themselves"),
    **dict.fromkeys(("GRPC_SERVER_USE_TLS", "GRPC_SERVER_TLS_CERT", "GRPC_SERVER_TLS_KEY"), Variable(HONOURED)),
    "GRPC_CLIENT_TLS_CACERT": Variable(HONOURED),
    "GRPC_CLIENT_TLS_SAN": Variable(REFUSED, "names of client certificates are not checked"),
    "LOG_LEVEL": Variable(DIFFERS, "panic and fatal are error, trace is debug; SEAWALL_LOG_LEVEL wins"),
    "LOG_FORMAT": Variable(IGNORED, "lines are logfmt", ("text",)),
    "CONFIG_TYPE": Variable(HONOURED),
    **dict.fromkeys(("RUNTIME_SUBDIRECTORY", "RUNTIME_APPDIRECTORY", "RUNTIME_IGNOREDOTFILES"), Variable(HONOURED)),
    "RUNTIME_ROOT": Variable(DIFFERS, "has no default: with it rules are read from files"),
    "RUNTIME_WATCH_ROOT": Variable(DIFFERS, "checked; the folder is looked at once a second whatever it says"),
    "MERGE_DOMAIN_CONFIG": Variable(DIFFERS, "in the order of the file names"),
    "FORCE_START_WITHOUT_INITIAL_CONFIG": Variable(
        DIFFERS, "the service always starts; with it, it serves before there are rules"
    ),
    **dict.fromkeys(
        (
            "CONFIG_GRPC_XDS_NODE_ID",
            "CONFIG_GRPC_XDS_NODE_METADATA",
            "CONFIG_GRPC_XDS_SERVER_URL",
            "CONFIG_GRPC_XDS_SERVER_CONNECT_RETRY_INTERVAL",
            "CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS",
            "CONFIG_GRPC_XDS_SERVER_USE_TLS",
            "CONFIG_GRPC_XDS_CLIENT_TLS_CERT",
            "CONFIG_GRPC_XDS_CLIENT_TLS_KEY",
            "CONFIG_GRPC_XDS_SERVER_TLS_CACERT",
            "CONFIG_GRPC_XDS_SERVER_TLS_SAN",
            "XDS_CLIENT_BACKOFF_INITIAL_INTERVAL",
            "XDS_CLIENT_BACKOFF_MAX_INTERVAL",
            "XDS_CLIENT_BACKOFF_JITTER",
            "XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES",
        ),
        Variable(HONOURED),
    ),
    "XDS_CLIENT_BACKOFF_RANDOM_FACTOR": Variable(DIFFERS, "the spread of a wait, 1 at most"),
    "BACKEND_TYPE": Variable(DIFFERS, "redis only; memcache is refused"),
    "CACHE_KEY_PREFIX": Variable(HONOURED),
    "EXPIRATION_JITTER_MAX_SECONDS": Variable(DIFFERS, "drawn with a window's first hit, not with each"),
    "LOCAL_CACHE_SIZE_IN_BYTES": Variable(DIFFERS, "one counter is taken for 256 bytes; each worker has a cache"),
    "NEAR_LIMIT_RATIO": Variable(HONOURED),
    "STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT": Variable(DIFFERS, "decided in one step, exact"),
    **dict.fromkeys(("SHADOW_MODE", "QUOTA_MODE", "RESPONSE_DYNAMIC_METADATA"), Variable(HONOURED)),
    "LIMIT_RESPONSE_HEADERS_ENABLED": Variable(HONOURED),
    **dict.fromkeys(("LIMIT_LIMIT_HEADER", "LIMIT_REMAINING_HEADER", "LIMIT_RESET_HEADER"), Variable(HONOURED)),
    "HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED": Variable(DIFFERS, "/healthcheck only, not gRPC health"),
    "REDIS_HEALTH_CHECK_ACTIVE_CONNECTION": Variable(DIFFERS, "/healthcheck only, not gRPC health"),
    **dict.fromkeys(("REDIS_TYPE", "REDIS_SOCKET_TYPE", "REDIS_AUTH", "REDIS_SENTINEL_AUTH"), Variable(HONOURED)),
    "REDIS_URL": Variable(DIFFERS, "has no default; a URL is taken too; SEAWALL_STORE wins"),
    **dict.fromkeys(
        ("REDIS_TLS", "REDIS_TLS_CLIENT_CERT", "REDIS_TLS_CLIENT_KEY", "REDIS_TLS_CACERT"), Variable(HONOURED)
    ),
    "REDIS_TLS_SKIP_HOSTNAME_VERIFICATION": Variable(DIFFERS, "the chain is checked all the same"),
    **dict.fromkeys(("REDIS_POOL_SIZE", "REDIS_POOL_ON_EMPTY_BEHAVIOR"), Variable(IGNORED, _POOL)),
    "REDIS_TIMEOUT": Variable(IGNORED, "SEAWALL_STORE_TIMEOUT is the time of a call, 0.25 s"),
    **dict.fromkeys(("REDIS_PIPELINE_WINDOW", "REDIS_PIPELINE_LIMIT"), Variable(IGNORED, _POOL)),
    "REDIS_CLUSTER_PIPELINE_PARALLELISM": Variable(IGNORED, _POOL),
    "REDIS_PERSECOND": Variable(REFUSED, "all limits are counted in one store"),
    **dict.fromkeys(
        (
            "REDIS_PERSECOND_SOCKET_TYPE",
            "REDIS_PERSECOND_TYPE",
            "REDIS_PERSECOND_URL",
            "REDIS_PERSECOND_POOL_SIZE",
            "REDIS_PERSECOND_AUTH",
            "REDIS_PERSECOND_TLS",
            "REDIS_PERSECOND_SENTINEL_AUTH",
            "REDIS_PERSECOND_TIMEOUT",
            "REDIS_PERSECOND_PIPELINE_WINDOW",
            "REDIS_PERSECOND_PIPELINE_LIMIT",
            "REDIS_PERSECOND_CLUSTER_PIPELINE_PARALLELISM",
            "REDIS_PERSECOND_POOL_ON_EMPTY_BEHAVIOR",
        ),
        Variable(IGNORED, _SECOND),
    ),
    **dict.fromkeys(
        ("REDIS_STARTUP_INITIAL_INTERVAL", "REDIS_STARTUP_MAX_INTERVAL", "REDIS_STARTUP_MAX_ELAPSED_TIME"),
        Variable(IGNORED, _STARTUP),
    ),
    **dict.fromkeys(
        (
            "MEMCACHE_HOST_PORT",
            "MEMCACHE_SRV",
            "MEMCACHE_SRV_REFRESH",
            "MEMCACHE_MAX_IDLE_CONNS",
            "MEMCACHE_TLS",
            "MEMCACHE_TLS_CLIENT_CERT",
            "MEMCACHE_TLS_CLIENT_KEY",
            "MEMCACHE_TLS_CACERT",
            "MEMCACHE_TLS_SKIP_HOSTNAME_VERIFICATION",
        ),
        Variable(IGNORED, _MEMCACHE),
    ),
    **dict.fromkeys(("USE_STATSD", "USE_DOG_STATSD"), Variable(IGNORED, _STATSD, _OFF)),
    **dict.fromkeys(("STATSD_HOST", "STATSD_PORT", "USE_DOG_STATSD_MOGRIFIERS"), Variable(IGNORED, _STATSD)),
    **dict.fromkeys(("EXTRA_TAGS", "STATS_FLUSH_INTERVAL"), Variable(IGNORED, _STATSD)),
    "USE_PROMETHEUS": Variable(DIFFERS, "opens PROMETHEUS_ADDR; /metrics is on the debug port in any case"),
    **dict.fromkeys(("PROMETHEUS_ADDR", "PROMETHEUS_PATH"), Variable(HONOURED)),
    "PROMETHEUS_MAPPER_YAML": Variable(IGNORED, "the names are those of docs/metrics.md"),
    "PROMETHEUS_RESPONSE_TIME_AS_MILLISECONDS": Variable(IGNORED, "times are in seconds", _OFF),
    "DISABLE_STATS": Variable(IGNORED, "statistics are always counted", _OFF),
    "TRACING_ENABLED": Variable(IGNORED, _TRACING, _OFF),
    **dict.fromkeys(
        (
            "TRACING_EXPORTER_PROTOCOL",
            "TRACING_SERVICE_NAME",
            "TRACING_SERVICE_NAMESPACE",
            "TRACING_SERVICE_INSTANCE_ID",
            "TRACING_SAMPLING_RATE",
        ),
        Variable(IGNORED, _TRACING),
    ),
}
