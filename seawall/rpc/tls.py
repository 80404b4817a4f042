"""TLS: what our client is told, and our server: HTTP/2 by ALPN, client certificates where a CA is named, files read again.

Each handshake goes to the context that is in force when it begins. A context is never changed once it is in use, so
connections that run are not touched, and sessions made under one client CA can't be resumed under the next.
"""

import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

_CIPHERS = "ECDHE+AESGCM:ECDHE+CHACHA20"
"""For TLS 1.2: what RFC 9113 (appendix A) leaves of it. TLS 1.3 has its own."""
_Stamp = tuple[int, int, int, int] | None
"""Inode, size and times of a file; None where there is none."""


@dataclass(frozen=True, slots=True)
class ClientTls:
    """PEM files: who may have signed the server (None: the system's authorities), and who we are.

    `server_name` is what the server's certificate must name, where that is not the host.
    """

    ca: str | None = None
    cert: str | None = None
    key: str | None = None
    server_name: str | None = None


class Certificates:
    """Certificate, key and client CA of a server, in PEM files that may change while it runs.

    Raises ValueError that names the file, never its content, where one is of no use.
    """

    def __init__(self, cert: str, key: str, client_ca: str | None = None):
        self._cert, self._key, self._client_ca = cert, key, client_ca
        self._paths = [cert, key, *([] if client_ca is None else [client_ca])]
        self._seen = self._loaded = _stamps(self._paths)
        self._context = _Listener(ssl.PROTOCOL_TLS_SERVER)
        self._context.in_force = self._read()

    @property
    def context(self) -> ssl.SSLContext:
        """The same object for ever, for asyncio and uvloop to listen with."""
        return self._context

    def refresh(self) -> bool:
        """Read the files again if they have changed; says whether new ones came in force.

        A change counts once two calls in a row have found it: certificate and key are seldom replaced in one step.
        Raises ValueError, once for each change, where new files are of no use; the old ones stay in force.
        """
        stamps = _stamps(self._paths)
        rested, self._seen = stamps == self._seen, stamps
        if stamps == self._loaded or not rested:
            return False
        self._loaded = stamps
        self._context.in_force = self._read()
        return True

    def _read(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.options |= ssl.OP_NO_RENEGOTIATION
        context.set_ciphers(_CIPHERS)
        context.set_alpn_protocols(["h2"])
        context.sslobject_class = _Http2
        for path in self._paths:
            _readable(path)
        try:
            context.load_cert_chain(self._cert, self._key, _no_password)
        except (OSError, _EncryptedError) as e:
            raise ValueError(self._mistake(e)) from None
        if self._client_ca is not None:
            _trust(context, self._client_ca)
            context.verify_mode = ssl.CERT_REQUIRED
        return context

    def _mistake(self, error: Exception) -> str:
        """Say which of certificate and key is wrong: OpenSSL does not."""
        if isinstance(error, _EncryptedError):
            return f"{self._key}: the private key is encrypted; one without a password is needed"
        reason = getattr(error, "reason", None) or ""
        if reason == "KEY_VALUES_MISMATCH":
            return f"{self._key}: not the private key of {self._cert}"
        try:
            _trust(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), self._cert)
        except ValueError as e:
            return str(e)
        if reason.startswith(("EE_", "CA_")):
            return f"{self._cert}: OpenSSL refuses the certificate: {reason.replace('_', ' ').lower()}"
        return f"{self._key}: no private key that can be read"


class _Listener(ssl.SSLContext):
    """What asyncio listens with. It makes each connection's TLS by the context in force.

    Switching in `sni_callback` would not do: verify mode, session cache and ticket keys stay those of the old context.
    """

    in_force: ssl.SSLContext

    def wrap_bio(
        self,
        incoming: ssl.MemoryBIO,
        outgoing: ssl.MemoryBIO,
        server_side: bool = False,
        server_hostname: str | bytes | None = None,
        session: ssl.SSLSession | None = None,
    ) -> ssl.SSLObject:
        return self.in_force.wrap_bio(incoming, outgoing, server_side, server_hostname, session)


class _Http2(ssl.SSLObject):
    """A server's side that refuses who did not ask for h2: OpenSSL goes on where ALPN finds nothing in common."""

    def do_handshake(self) -> None:
        super().do_handshake()
        if self.selected_alpn_protocol() != "h2":
            raise ssl.SSLError(ssl.SSL_ERROR_SSL, "the client has not offered h2 by ALPN")


class _EncryptedError(Exception):
    """OpenSSL asks for a password."""


def _no_password() -> str:
    # Without this, OpenSSL would ask at the terminal.
    raise _EncryptedError


def _trust(context: ssl.SSLContext, path: str) -> None:
    try:
        context.load_verify_locations(path)
    except OSError:
        raise ValueError(f"{path}: no certificates that can be read") from None
    if not context.cert_store_stats()["x509"]:
        raise ValueError(f"{path}: no certificate in it")


def _readable(path: str) -> None:
    try:
        with Path(path).open("rb"):
            pass
    except OSError as e:
        raise ValueError(f"{path}: {e.strerror or e}") from None


def _stamps(paths: Sequence[str]) -> list[_Stamp]:
    return [_stamp(path) for path in paths]


def _stamp(path: str) -> _Stamp:
    try:
        found = Path(path).stat()
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns
