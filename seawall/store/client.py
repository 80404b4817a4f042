"""redis-py's clients for a store: the control path's own, and those that ask who is master or who has which slots."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import redis.asyncio
from redis.asyncio.cluster import ClusterNode, RedisCluster
from redis.asyncio.connection import Connection, ConnectionPool, SSLConnection, UnixDomainSocketConnection
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import Sentinel, SentinelManagedConnection
from redis.backoff import NoBackoff
from redis.credentials import CredentialProvider
from redis.exceptions import ConnectionError as NotConnected
from redis.exceptions import MovedError, ReadOnlyError, RedisClusterException

from seawall.store.address import Address
from seawall.store.contract import StoreUnavailable
from seawall.store.endpoint import Access, Endpoint, Login, Tls

_CONNECT = 2.0


def control(address: Address, timeout: float | None) -> Any:
    """Make the client of the control path: a Redis, or a RedisCluster, which share methods but no type.

    `timeout` in seconds is for one reply, None for no bound.
    """
    if address.form == "cluster":
        return _cluster(address, timeout)
    if address.form == "sentinel":
        finder = sentinel(address, _CONNECT)
        tls = address.access.tls is not None
        client = finder.master_for(
            address.master,
            redis_class=_OfMaster,
            connection_class=_SentinelTlsConnection if tls else SentinelManagedConnection,
            **_options(address.access, timeout),
        )
        client.finder = finder
        return client
    return node(address.nodes[0], address.access, timeout)


def node(endpoint: Endpoint, access: Access, timeout: float | None) -> redis.asyncio.Redis:
    """Make a client of one node."""
    where: dict[str, Any] = {"host": endpoint.host, "port": endpoint.port}
    kind: type = Connection
    if endpoint.path:
        where, kind = {"path": endpoint.path}, UnixDomainSocketConnection
    elif access.tls is not None:
        kind = _TlsConnection
    return _Node.from_pool(ConnectionPool(kind, **where, **_options(access, timeout)))


def sentinel(address: Address, timeout: float) -> Sentinel:
    """Make what asks the sentinels who is master."""
    finder = Sentinel([])  # type: ignore[no-untyped-call]
    finder.sentinels = [node(endpoint, address.sentinel, timeout) for endpoint in address.nodes]
    return finder


class _Node(redis.asyncio.Redis):
    """Client of one node, which leaves a master that became a replica: its name may lead to the new one by now."""

    async def execute_command(self, *args: Any, **options: Any) -> Any:
        try:
            return await super().execute_command(*args, **options)  # type: ignore[no-untyped-call]
        except ReadOnlyError:
            await self.connection_pool.disconnect()
            raise


class _OfMaster(redis.asyncio.Redis):
    """Client of whoever is master."""

    finder: Sentinel

    async def aclose(self, close_connection_pool: bool | None = None) -> None:
        await super().aclose(close_connection_pool)
        await self.finder.aclose()


class _Cluster(RedisCluster):
    """Client of a cluster whose failures are those of any other client, and whose pipelines may be transactions.

    redis-py's own pipeline of a cluster refuses MGET and spoils transactions with replies that it reshapes. The keys of
    one of ours are in one slot, so a plain pipeline on that slot's node does it.
    """

    access: Access
    timeout: float | None

    async def execute_command(self, *args: Any, **options: Any) -> Any:
        with _plain_failures():
            return await super().execute_command(*args, **options)

    def pipeline(self, transaction: Any | None = None, shard_hint: Any | None = None) -> Any:
        del shard_hint
        return _Pipeline(self, bool(transaction))


class _Pipeline:
    """Remembers commands, to run them on the node of the first one's key."""

    def __init__(self, cluster: _Cluster, transaction: bool):
        self._cluster = cluster
        self._transaction = transaction
        self._calls: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = []

    def __getattr__(self, name: str) -> Callable[..., "_Pipeline"]:
        def remember(*args: Any, **options: Any) -> _Pipeline:
            self._calls.append((name, args, options))
            return self

        return remember

    async def execute(self) -> list[Any]:
        if not self._calls:
            return []
        try:
            return await self._run()
        except MovedError:
            await self._cluster.aclose()  # it asks for the slots again
            return await self._run()

    async def _run(self) -> list[Any]:
        with _plain_failures():
            await self._cluster.initialize()
            at = self._cluster.get_node_from_key(self._calls[0][1][0])
        if at is None:
            raise NotConnected("the slot has no node")
        async with node(Endpoint(str(at.host), int(at.port)), self._cluster.access, self._cluster.timeout) as one:
            pipeline = one.pipeline(self._transaction)
            for name, args, options in self._calls:
                getattr(pipeline, name)(*args, **options)
            return await pipeline.execute()


@contextmanager
def _plain_failures() -> Iterator[None]:
    """Turn what redis-py's cluster raises beside RedisError into one."""
    try:
        yield
    except RedisClusterException as error:
        raise NotConnected(str(error)) from None


def _cluster(address: Address, timeout: float | None) -> RedisCluster:
    options = _options(address.access, timeout)
    tls = options.pop("tls", None)
    options.pop("db")
    client = _Cluster(
        startup_nodes=[ClusterNode(endpoint.host, endpoint.port) for endpoint in address.nodes],
        require_full_coverage=False,
        ssl=tls is not None,
        **options,
    )
    client.access, client.timeout = address.access, timeout
    if tls is not None:
        # redis-py has no word for a server name other than the host, so its connections are made by a class of ours.
        for name in [name for name in client.connection_kwargs if name.startswith("ssl_")]:
            del client.connection_kwargs[name]
        client.connection_kwargs.update(connection_class=_TlsConnection, tls=tls)
        client.nodes_manager.startup_nodes = {
            endpoint.name: ClusterNode(endpoint.host, endpoint.port, **client.connection_kwargs)
            for endpoint in client.startup_nodes
        }
    return client


def _options(access: Access, timeout: float | None) -> dict[str, Any]:
    options: dict[str, Any] = {
        "db": access.db,
        "credential_provider": _Credentials(access.login) if access.login != Login() else None,
        "socket_timeout": timeout,
        "socket_connect_timeout": timeout or _CONNECT,
        "retry": Retry(NoBackoff(), 0),  # a write that may have run is not sent twice
        "protocol": 2,
    }
    return options if access.tls is None else {**options, "tls": access.tls}


class _Credentials(CredentialProvider):
    """Reads the password for each connection anew."""

    def __init__(self, login: Login):
        self._login = login

    def get_credentials(self) -> tuple[str] | tuple[str, str]:
        try:
            words = self._login.words()
        except StoreUnavailable as error:
            raise NotConnected(str(error)) from None
        return (words[0], words[1]) if len(words) == 2 else (words[0] if words else "",)

    async def get_credentials_async(self) -> tuple[str] | tuple[str, str]:
        return self.get_credentials()


class _TlsConnection(SSLConnection):
    """A connection by our own words of TLS."""

    def __init__(self, *, tls: Tls, **options: Any):
        self._tls = tls
        super().__init__(**options)

    def _connection_arguments(self) -> Mapping[str, Any]:
        try:
            context = self._tls.context()
        except ValueError as error:
            raise NotConnected(str(error)) from None
        name = self._tls.server_name or self.host
        return {"host": self.host, "port": self.port, "ssl": context, "server_hostname": name}


class _SentinelTlsConnection(SentinelManagedConnection, _TlsConnection):
    """A connection to whoever is master."""
