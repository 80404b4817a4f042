"""TLS of our server: real handshakes, and files that change while calls run."""

import asyncio
import os
import shutil
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
import uvloop

from seawall.rpc.contract import CloseReason
from seawall.rpc.server import CodecServer
from seawall.rpc.tls import Certificates
from tests.certificates import authority, openssl, signed
from tests.rpc.frames import PREFACE, SETTINGS, frame, settings, split
from tests.wire.carried import MAX_MESSAGE, Tiny, call, refusal, talk, until

# grpcio still tells a loop of calls that a test is done with: one loop for all, as in tests/wire.
on_one_loop = pytest.mark.asyncio(loop_scope="session")
pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="no openssl command to make certificates with")
UNAVAILABLE = grpc.StatusCode.UNAVAILABLE
NEITHER = ("", "")


class Files:
    """The three files of a server, replaced as an operator would: a new file, moved into place."""

    def __init__(self, folder: Path):
        self.cert, self.key, self.ca = folder / "cert.pem", folder / "key.pem", folder / "ca.pem"

    def put(self, file: Path, content: bytes) -> None:
        new = file.with_suffix(".new")
        new.write_bytes(content)
        new.replace(file)

    def serve(self, ca: str, name: str = "server") -> None:
        cert, key = signed(ca, name)
        self.put(self.cert, cert)
        self.put(self.key, key)

    def trust(self, *cas: str) -> None:
        self.put(self.ca, b"".join(authority(ca)[0] for ca in cas))

    def certificates(self, mutual: bool = False) -> Certificates:
        return Certificates(str(self.cert), str(self.key), str(self.ca) if mutual else None)


@pytest.fixture
def files(tmp_path: Path) -> Files:
    made = Files(tmp_path)
    made.serve("one")
    made.trust("clients")
    return made


def reread(certificates: Certificates) -> bool:
    """Two looks, as a worker has them in two seconds: a change counts once it has rested."""
    assert not certificates.refresh()
    return certificates.refresh()


class Running:
    """A server on a port, and clients of it."""

    def __init__(self, certificates: Certificates):
        self.tiny = Tiny(Echo=lambda data, _: data)
        self.faults: list[Any] = []
        self.server = CodecServer(
            [self.tiny.rpc],
            ["127.0.0.1:0"],
            max_message=MAX_MESSAGE,
            on_error=lambda *fault: self.faults.append(fault),
            tls=certificates.context,
        )

    @property
    def port(self) -> int:
        return self.server.ports[0]

    def connect(self, ca: str, client: tuple[bytes, bytes] | None = None) -> grpc.aio.Channel:
        """A connection of its own that trusts a CA."""
        cert, key = client or (None, None)
        return grpc.aio.secure_channel(
            f"localhost:{self.port}",
            grpc.ssl_channel_credentials(authority(ca)[0], key, cert),
            options=[("grpc.use_local_subchannel_pool", 1)],
        )

    async def answers(self, ca: str, client: tuple[bytes, bytes] | None = None) -> bool:
        """Say whether a new connection is served; the only other thing it may be is refused."""
        async with self.connect(ca, client) as channel:
            try:
                return bool(await call(channel, "Echo", b"x") == b"x")
            except grpc.aio.AioRpcError as error:
                assert error.code() is UNAVAILABLE
                return False


@asynccontextmanager
async def served(certificates: Certificates) -> AsyncIterator[Running]:
    running = Running(certificates)
    await running.server.start()
    try:
        yield running
    finally:
        async with asyncio.timeout(20):
            await running.server.drain(0)
    assert running.faults == []


@on_one_loop
async def test_a_call(files: Files) -> None:
    """Calls and streams, small and large, by a client that trusts the right CA and knows the name."""
    async with served(files.certificates()) as running, running.connect("one") as channel:
        for data in (b"", b"abc", bytes(MAX_MESSAGE)):
            assert await call(channel, "Echo", data) == data
        stream = talk(channel)
        for data in (b"one", bytes(MAX_MESSAGE)):
            await stream.write(data)
            assert await stream.read() == data
        await stream.done_writing()
        assert await stream.read() is grpc.aio.EOF
        assert await (await running.tiny.stream()).end() is CloseReason.DONE


@on_one_loop
async def test_a_client_that_trusts_another(files: Files) -> None:
    """It refuses us; one without TLS is refused by us; others are served all the while."""
    async with served(files.certificates()) as running:
        assert not await running.answers("two")
        async with grpc.aio.insecure_channel(f"127.0.0.1:{running.port}") as channel:
            assert (await refusal(call(channel, "Echo", b"x")))[0] is UNAVAILABLE
        assert await running.answers("one")


@on_one_loop
async def test_mutual_tls(files: Files) -> None:
    """A client certificate of the CA that is named, and no other."""
    async with served(files.certificates(mutual=True)) as running:
        assert await running.answers("one", signed("clients", "envoy"))
        assert not await running.answers("one")
        assert not await running.answers("one", signed("strangers", "envoy"))
        # A certificate of the CA that signed ours is not one of our clients'.
        assert not await running.answers("one", signed("one", "server"))
        await until(lambda: not running.server.connections, "refused clients leave nothing")


@on_one_loop
async def test_without_a_client_ca_none_is_asked_for(files: Files) -> None:
    async with served(files.certificates()) as running:
        assert await running.answers("one", signed("strangers", "envoy"))


@on_one_loop
async def test_a_new_certificate(files: Files) -> None:
    """New connections see it, at once and without a restart; a stream that runs notices nothing."""
    certificates = files.certificates()
    async with served(certificates) as running, running.connect("one") as before:
        stream = talk(before)
        await stream.write(b"before")
        assert await stream.read() == b"before"
        files.serve("two")
        assert reread(certificates)
        assert not certificates.refresh()
        assert not await running.answers("one")
        assert await running.answers("two")
        await stream.write(b"after")
        assert await stream.read() == b"after"
        assert await call(before, "Echo", b"same connection") == b"same connection"
        await stream.done_writing()
        assert await stream.read() is grpc.aio.EOF
        assert await stream.code() is grpc.StatusCode.OK


@on_one_loop
async def test_a_new_client_ca(files: Files) -> None:
    """Who is trusted no more can't connect again; who is connected stays."""
    certificates = files.certificates(mutual=True)
    old, new = signed("clients", "envoy"), signed("others", "envoy")
    async with served(certificates) as running, running.connect("one", old) as before:
        stream = talk(before)
        await stream.write(b"before")
        assert await stream.read() == b"before"
        assert not await running.answers("one", new)
        files.trust("clients", "others")
        assert reread(certificates)
        assert await running.answers("one", old)
        assert await running.answers("one", new)
        files.trust("others")
        assert reread(certificates)
        assert not await running.answers("one", old)
        assert await running.answers("one", new)
        await stream.write(b"after")
        assert await stream.read() == b"after"


def broken(files: Files) -> dict[str, tuple[Path, bytes | None, str]]:
    """Which file, what is in it, and what is said of it."""
    cert, key = files.cert.read_bytes(), files.key.read_bytes()
    encrypted = openssl("ec", "-in", str(files.key), "-aes128", "-passout", "pass:x")
    return {
        "no cert": (files.cert, None, "No such file"),
        "cert of words": (files.cert, b"SECRET words", "no certificate"),
        "empty cert": (files.cert, b"", "no certificate"),
        "torn cert": (files.cert, cert[:200], "no certificate"),
        "torn chain": (files.cert, cert + cert[:200], "no certificate"),
        "key for a cert": (files.cert, key, "no certificate"),
        "no key": (files.key, None, "No such file"),
        "key of words": (files.key, b"SECRET words", "no private key that can be read"),
        "torn key": (files.key, key[:100], "no private key that can be read"),
        "another's key": (files.key, signed("two", "server")[1], f"not the private key of {files.cert}"),
        "key with a password": (files.key, encrypted, "encrypted"),
        "no client CA": (files.ca, None, "No such file"),
        "client CA of words": (files.ca, b"SECRET words", "no certificate"),
        "torn client CA": (files.ca, authority("clients")[0][:200], "no certificate"),
    }


CASES = [
    "no cert", "cert of words", "empty cert", "torn cert", "torn chain", "key for a cert",
    "no key", "key of words", "torn key", "another's key", "key with a password",
    "no client CA", "client CA of words", "torn client CA",
]  # fmt: skip


def break_it(files: Files, case: str) -> Callable[[ValueError], None]:
    """Put a broken file in place; returns what its message must pass."""
    table = broken(files)
    assert list(table) == CASES
    path, content, words = table[case]
    if content is None:
        path.unlink()
    else:
        files.put(path, content)

    def passes(error: ValueError) -> None:
        said = str(error)
        assert said.startswith(f"{path}: ") and words in said, said
        assert "SECRET" not in said and "-----" not in said and "\n" not in said and len(said) < 300
        # Nor may a traceback show more.
        assert error.__cause__ is None and error.__suppress_context__

    return passes


@pytest.mark.parametrize("case", CASES)
def test_a_bad_file_at_the_start(files: Files, case: str) -> None:
    """The file and what is wrong are named."""
    passes = break_it(files, case)
    with pytest.raises(ValueError) as told:
        files.certificates(mutual=True)
    passes(told.value)


@on_one_loop
@pytest.mark.parametrize("case", CASES)
async def test_a_bad_file_later(files: Files, case: str) -> None:
    """The old ones stay in force, it is told once, and a mended file is taken."""
    certificates, client = files.certificates(mutual=True), signed("clients", "envoy")
    async with served(certificates) as running:
        passes = break_it(files, case)
        assert not certificates.refresh()
        with pytest.raises(ValueError) as told:
            certificates.refresh()
        passes(told.value)
        assert not certificates.refresh()
        assert await running.answers("one", client)
        files.serve("two")
        files.trust("clients")
        assert reread(certificates)
        assert await running.answers("two", client)


@pytest.mark.parametrize("kind", ["weak", "a folder"])
def test_other_files_of_no_use(files: Files, kind: str) -> None:
    if kind == "weak":
        if ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).security_level < 1:
            pytest.skip("this OpenSSL takes any key")
        made = f"{files.cert}.weak"
        # fmt: off
        openssl(
            "req", "-x509", "-newkey", "rsa:512", "-nodes", "-subj", "/CN=weak", "-keyout", str(files.key), "-out", made
        )
        # fmt: on
        files.put(files.cert, Path(made).read_bytes())
        words = "refuses the certificate: ee key too small"
    else:
        files.cert.unlink()
        files.cert.mkdir()
        words = "Is a directory"
    with pytest.raises(ValueError) as told:
        files.certificates()
    assert str(told.value).startswith(f"{files.cert}: ") and words in str(told.value)


def test_a_key_in_the_file_of_the_certificate(files: Files) -> None:
    files.put(files.cert, files.cert.read_bytes() + files.key.read_bytes())
    Certificates(str(files.cert), str(files.cert))


def test_a_change_counts_once_it_has_rested(files: Files) -> None:
    """Certificate and key are seldom replaced in one step: a look between the two says nothing."""
    certificates = files.certificates()
    assert not certificates.refresh()
    cert, key = signed("two", "server")
    files.put(files.cert, cert)
    assert not certificates.refresh()
    files.put(files.key, key)
    assert reread(certificates)


def test_what_counts_as_a_change(files: Files) -> None:
    """A file written over, touched or replaced by a link; and a file that is back as it was does no harm."""
    certificates = files.certificates()
    files.cert.write_bytes(files.cert.read_bytes())
    os.utime(files.cert, ns=(1, 1))
    assert reread(certificates)
    elsewhere = files.cert.with_name("elsewhere")
    shutil.copy(files.cert, elsewhere)
    files.cert.unlink()
    files.cert.symlink_to(elsewhere)
    assert reread(certificates)


# Handshakes by hand, over both loops: what grpcio's client would never do.


def client_context(version: ssl.TLSVersion, alpn: list[str], client: tuple[str, str] | None = None) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(cadata=authority("one")[0].decode())
    context.check_hostname = False
    context.minimum_version = context.maximum_version = version
    if alpn:
        context.set_alpn_protocols(alpn)
    if client is not None:
        context.load_cert_chain(*client)
    return context


@pytest.fixture
def client_files(tmp_path: Path) -> tuple[str, str]:
    paths = tmp_path / "client.pem", tmp_path / "client.key"
    for path, content in zip(paths, signed("clients", "envoy"), strict=True):
        path.write_bytes(content)
    return str(paths[0]), str(paths[1])


class Talk:
    """What came of a blocking client's connection."""

    def __init__(self, port: int, context: ssl.SSLContext, name: str | None, session: ssl.SSLSession | None = None):
        self.served = self.reused = False
        self.alpn: str | None = None
        self.subject = ""
        self.session: ssl.SSLSession | None = None
        try:
            with (
                socket.create_connection(("127.0.0.1", port), timeout=10) as plain,
                context.wrap_socket(plain, server_hostname=name, session=session) as wrapped,
            ):
                self._greet(wrapped)
        except OSError:
            # Refused: by an alert, or by the end of the connection.
            return

    def _greet(self, wrapped: ssl.SSLSocket) -> None:
        self.alpn, self.reused = wrapped.selected_alpn_protocol(), bool(wrapped.session_reused)
        self.subject = str((wrapped.getpeercert() or {}).get("subject"))
        wrapped.sendall(PREFACE + settings() + frame(6, 0, 0, bytes(8)))
        got = b""
        while not any(f.kind == 6 for f in split(got)):
            if not (some := wrapped.recv(65536)):
                return
            got += some
        assert split(got)[0].kind == SETTINGS
        self.served = True
        self.session = wrapped.session


@pytest.fixture(params=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Iterator[Callable[[Any], None]]:
    yield uvloop.run if request.param == "uvloop" else asyncio.run


versions = pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3], ids=["1.2", "1.3"])


@versions
def test_http2_by_alpn(files: Files, run: Callable[[Any], None], version: ssl.TLSVersion) -> None:
    """Who offers h2 is served, with or without a server's name; who does not is closed before a byte of HTTP/2."""

    async def body() -> None:
        async with served(files.certificates()) as running:
            for offered, name, good in [
                (["h2"], "localhost", True),
                (["h2"], None, True),
                (["http/1.1", "h2"], None, True),
                (["http/1.1"], "localhost", False),
                ([], None, False),
            ]:
                came = await asyncio.to_thread(Talk, running.port, client_context(version, offered), name)
                assert came.served == good, (offered, name)
                if good:
                    assert came.alpn == "h2"
            await until(lambda: not running.server.connections, "all are gone")

    run(body())


def test_old_tls_is_refused(files: Files, run: Callable[[Any], None]) -> None:
    async def body() -> None:
        async with served(files.certificates()) as running:
            context = client_context(ssl.TLSVersion.TLSv1_2, ["h2"])
            context.set_ciphers("ECDHE-ECDSA-AES128-SHA256")  # RFC 9113 (appendix A) forbids it
            assert not (await asyncio.to_thread(Talk, running.port, context, None)).served
            with pytest.warns(DeprecationWarning):
                old = client_context(ssl.TLSVersion.TLSv1_1, ["h2"])
            old.set_ciphers("ALL:@SECLEVEL=0")
            assert not (await asyncio.to_thread(Talk, running.port, old, None)).served

    run(body())


@versions
@pytest.mark.parametrize("name", ["localhost", None])
def test_a_change_reaches_who_names_no_server(
    files: Files, run: Callable[[Any], None], version: ssl.TLSVersion, name: str | None
) -> None:
    """Also without SNI, and on either loop, the next handshake has the new certificate."""

    async def body() -> None:
        certificates = files.certificates()
        async with served(certificates) as running:
            for subject in ("server", "next", "third"):
                if subject != "server":
                    files.serve("one", subject)
                    assert reread(certificates)
                came = await asyncio.to_thread(Talk, running.port, client_context(version, ["h2"]), name)
                assert came.served and f"'{subject}'" in came.subject

    run(body())


@versions
def test_a_session_ends_with_its_ca(
    files: Files, client_files: tuple[str, str], run: Callable[[Any], None], version: ssl.TLSVersion
) -> None:
    """A client that is trusted no more can't come in by resuming the session it had."""

    async def body() -> None:
        certificates = files.certificates(mutual=True)
        async with served(certificates) as running:
            context = client_context(version, ["h2"], client_files)

            async def again(session: ssl.SSLSession | None) -> Talk:
                return await asyncio.to_thread(Talk, running.port, context, "localhost", session)

            first = await again(None)
            assert first.served and not first.reused
            second = await again(first.session)
            assert second.served and second.reused
            # Touched alone: a client whose session is not known any more is asked for its certificate again.
            os.utime(files.ca, ns=(1, 1))
            assert reread(certificates)
            third = await again(first.session)
            assert third.served and not third.reused
            files.trust("others")
            assert reread(certificates)
            for session in (first.session, third.session, None):
                assert not (await again(session)).served

    run(body())
