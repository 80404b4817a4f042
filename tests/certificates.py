"""Certificates for tests, made by the openssl command; the same for all tests of a run."""

import subprocess
import tempfile
from functools import cache
from pathlib import Path


def openssl(*words: str) -> bytes:
    return subprocess.run(["openssl", *words], check=True, capture_output=True, timeout=30).stdout


@cache
def authority(name: str) -> tuple[bytes, bytes]:
    """Certificate and key of a CA, the same for all tests."""
    with tempfile.TemporaryDirectory(prefix="sw-tls-") as at:
        key, cert = f"{at}/key", f"{at}/cert"
        openssl("ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", key)
        openssl("req", "-x509", "-new", "-key", key, "-subj", f"/CN=CA {name}", "-days", "2", "-out", cert)
        return Path(cert).read_bytes(), Path(key).read_bytes()


@cache
def signed(ca: str, name: str) -> tuple[bytes, bytes]:
    """Certificate and key that a CA has signed: for a server on this machine, and good for a client too."""
    with tempfile.TemporaryDirectory(prefix="sw-tls-") as at:
        folder = Path(at)
        for file, content in zip(("ca", "ca.key"), authority(ca), strict=True):
            (folder / file).write_bytes(content)
        (folder / "ext").write_text("subjectAltName=DNS:localhost,IP:127.0.0.1\nbasicConstraints=CA:FALSE\n")
        openssl("ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", f"{at}/key")
        openssl("req", "-new", "-key", f"{at}/key", "-subj", f"/CN={name}", "-out", f"{at}/csr")
        # fmt: off
        openssl(
            "x509", "-req", "-in", f"{at}/csr", "-CA", f"{at}/ca", "-CAkey", f"{at}/ca.key", "-set_serial", "7",
            "-days", "2", "-extfile", f"{at}/ext", "-out", f"{at}/cert",
        )
        # fmt: on
        return (folder / "cert").read_bytes(), (folder / "key").read_bytes()
