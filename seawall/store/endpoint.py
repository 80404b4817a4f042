"""How one node of Redis is reached: where it listens, who we say we are, and how TLS is spoken.

Secrets are in no text made of these. What lies in files (a password, certificates) is read anew for each connection, so
a secret that is rotated in place needs no restart.
"""

import ssl
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from seawall.store.contract import StoreUnavailable

Verify = Literal["full", "chain", "off"]


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A Unix socket when `path` is set, else host and port."""

    host: str = "localhost"
    port: int = 6379
    path: str = ""

    def __str__(self) -> str:
        """`host:port`, or the path."""
        if self.path:
            return self.path
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Login:
    """An ACL user and its password; without a user the password is that of `default` (`requirepass`)."""

    username: str = ""
    password: str = field(default="", repr=False)
    password_file: str = ""

    def words(self) -> tuple[str, ...]:
        """Arguments of AUTH; () when none is needed. Raises StoreUnavailable when the file can't be read."""
        password = self.password
        if self.password_file:
            try:
                password = Path(self.password_file).read_text("utf-8").rstrip("\r\n")
            except (OSError, ValueError) as error:
                raise StoreUnavailable(f"password file: {type(error).__name__}") from None
        if not password:
            return ()
        return (self.username, password) if self.username else (password,)


@dataclass(frozen=True, slots=True)
class Tls:
    """TLS of a client. Paths are PEM files; "" for `ca` means the authorities that the system trusts.

    `verify`: `full` checks chain and name, `chain` the chain alone (certificates that name no host), `off` nothing.
    `server_name` is the name asked for and checked in place of the host.
    """

    ca: str = ""
    cert: str = ""
    key: str = ""
    server_name: str = ""
    verify: Verify = "full"

    def context(self) -> ssl.SSLContext:
        """Read the files. Raises ValueError that names the file that can't be used."""
        try:
            context = ssl.create_default_context(cafile=self.ca or None)
        except (OSError, ssl.SSLError) as error:
            raise ValueError(f"ca {self.ca}: {_why(error)}") from None
        if self.verify != "full":
            context.check_hostname = False
        if self.verify == "off":
            context.verify_mode = ssl.CERT_NONE
        if self.cert:
            try:
                context.load_cert_chain(self.cert, self.key or None)
            except (OSError, ssl.SSLError) as error:
                raise ValueError(f"cert {self.cert}, key {self.key or self.cert}: {_why(error)}") from None
        return context


@dataclass(frozen=True, slots=True)
class Access:
    """How to get in, the same for all nodes of a store."""

    login: Login = Login()
    tls: Tls | None = None
    db: int = 0


def _why(error: Exception) -> str:
    return str(getattr(error, "strerror", None) or getattr(error, "reason", None) or type(error).__name__)
