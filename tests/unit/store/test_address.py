import shutil
import subprocess
from pathlib import Path

import pytest

from seawall.store import open_control, open_store
from seawall.store.address import PARTS, Address, joined, parse
from seawall.store.endpoint import Access, Endpoint, Login, Tls


def single(where: Endpoint, db: int = 0, login: Login | None = None, tls: Tls | None = None) -> Address:
    return Address("single", (where,), Access(login or Login(), tls, db))


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("redis://", Address()),
        ("redis://cache", single(Endpoint("cache"))),
        ("REDIS://Cache:1234/7", single(Endpoint("cache", 1234), 7)),
        ("redis://[::1]:1234", single(Endpoint("::1", 1234))),
        ("redis://[::1]", single(Endpoint("::1"))),
        ("redis://cache?db=3", single(Endpoint("cache"), 3)),
        ("redis://:p%40ss%23@cache", single(Endpoint("cache"), 0, Login(password="p@ss#"))),
        ("redis://:p@ss@cache", single(Endpoint("cache"), 0, Login(password="p@ss"))),
        ("redis://ann:pw@cache:1/2", single(Endpoint("cache", 1), 2, Login("ann", "pw"))),
        ("redis://ann@cache?password_file=/run/pw", single(Endpoint("cache"), 0, Login("ann", "", "/run/pw"))),
        ("unix:///run/redis.sock", single(Endpoint(path="/run/redis.sock"))),
        ("unix:///run/my%20r%23.sock", single(Endpoint(path="/run/my r#.sock"))),
        ("unix:///run/r.sock?db=2&password=pw", single(Endpoint(path="/run/r.sock"), 2, Login(password="pw"))),
        ("unix://ann:pw@/run/redis.sock", single(Endpoint(path="/run/redis.sock"), 0, Login("ann", "pw"))),
        ("rediss://cache", single(Endpoint("cache"), tls=Tls())),
        ("rediss://cache?verify=off&server_name=x", single(Endpoint("cache"), tls=Tls(server_name="x", verify="off"))),
        (
            "redis+sentinel://ann:pw@a,b:2,[::1]:3/main/4?sentinel_username=s&sentinel_password=spw",
            Address(
                "sentinel",
                (Endpoint("a", 26379), Endpoint("b", 2), Endpoint("::1", 3)),
                Access(Login("ann", "pw"), None, 4),
                "main",
                Access(Login("s", "spw")),
            ),
        ),
        (
            "rediss+sentinel://a/main?verify=chain",
            Address(
                "sentinel",
                (Endpoint("a", 26379),),
                Access(tls=Tls(verify="chain")),
                "main",
                Access(tls=Tls(verify="chain")),
            ),
        ),
        (
            "rediss+sentinel://a/main?sentinel_tls=off",
            Address("sentinel", (Endpoint("a", 26379),), Access(tls=Tls()), "main"),
        ),
        ("redis+cluster://a,b:2", Address("cluster", (Endpoint("a"), Endpoint("b", 2)))),
        ("rediss+cluster://:pw@a", Address("cluster", (Endpoint("a"),), Access(Login(password="pw"), Tls()))),
    ],
)
def test_urls(url: str, address: Address) -> None:
    assert parse(url) == address


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("", "not a store"),
        ("s3cr3t", "not a store"),
        ("redis:s3cr3t", "not a store"),
        ("http://u:s3cr3t@cache", "not a store"),
        ("sentinel://u:s3cr3t@a/main", r"write redis\+sentinel://"),
        ("cluster://u:s3cr3t@a", r"write redis\+cluster://"),
        ("redis://u:s3cr3t@cache:port", "the port is not a number"),
        ("redis://u:s3cr3t@cache:99999", "the port is not a number"),
        ("redis://u:s3cr3t@cache:0", "the port is not a number"),
        ("redis://u:s3cr3t@cache/db", "the database is not a number"),
        ("redis://u:s3cr3t@cache/1/2", "too many parts"),
        ("redis://u:s3cr3t@cache/1?db=2", "the database stands twice"),
        ("redis://u:s3cr3t#x@cache", "written %23"),
        ("redis://u:?s3cr3t@cache", "written %3F"),
        ("redis://u:/s3cr3t@cache", "is not a number"),
        ("redis://u:s3cr3t@[cache", "an IPv6 host is written"),
        ("redis://u:s3cr3t@ca che", "a character that no host has"),
        ("redis://u:s3cr3t@a,b", r"several are a redis\+sentinel"),
        ("redis://cache?passwort=s3cr3t", "unknown parameter 'passwort'"),
        ("redis://cache?ca=/s3cr3t", "it needs rediss"),
        ("redis://:s3cr3t@cache?password=s3cr3t", "password stands twice"),
        ("redis://:s3cr3t@cache?password_file=/x", "only one of them"),
        ("redis://cache?db=1&db=1&password=s3cr3t", "db stands twice"),
        ("unix://u:s3cr3t@run/redis.sock", "three slashes"),
        ("unix://relative?password=s3cr3t", "three slashes"),
        ("unix:///run/redis.sock?db=-1&password=s3cr3t", "the database is not a number"),
        ("rediss://cache?ca=/no/such/file", "ca /no/such/file: No such file"),
        ("rediss://cache?cert=/no/such/file", "cert /no/such/file, key /no/such/file: No such file"),
        ("rediss://cache?key=/x", "key needs cert"),
        ("rediss://cache?verify=no", "verify is full, chain, off"),
        ("redis+sentinel://u:s3cr3t@a", "the name of the master"),
        ("redis+sentinel://u:s3cr3t@a,,b/main", "host 2 of the list is empty"),
        ("redis+sentinel://u:s3cr3t@a/main/x", "the database is not a number"),
        ("redis+sentinel://a/main?sentinel_tls=on", r"needs rediss\+sentinel"),
        ("rediss+sentinel://a/main?sentinel_tls=1", "on or off"),
        ("redis+cluster://u:s3cr3t@a/1", "a cluster has no databases"),
        ("redis+cluster://a?db=1", "unknown parameter|no databases"),
        ("memory://s3cr3t", "not a store"),
    ],
)
def test_a_mistake_is_named_with_what_is_allowed_and_never_repeated(url: str, told: str) -> None:
    for attempt in (lambda: open_store(url, owner="w"), lambda: open_control(url)):
        with pytest.raises(ValueError, match=told) as refused:
            attempt()
        assert "allowed: memory, redis://" in str(refused.value)
        assert "s3cr3t" not in str(refused.value)
        assert refused.value.__suppress_context__ or refused.value.__context__ is None


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("redis://ann:s3cr3t@[::1]:1/2", "redis://[::1]:1/2"),
        ("unix://:s3cr3t@/run/s?db=2", "unix:///run/s?db=2"),
        ("rediss://cache?password=s3cr3t", "rediss://cache:6379/0"),
        ("redis+sentinel://:s3cr3t@a,b/main?sentinel_password=s3cr3t", "redis+sentinel://a:26379,b:26379/main/0"),
        ("rediss+cluster://:s3cr3t@a,b", "rediss+cluster://a:6379,b:6379"),
    ],
)
def test_an_address_shows_no_password(url: str, shown: str) -> None:
    address = parse(url)
    assert str(address) == shown
    assert "s3cr3t" not in repr(address)


def test_a_password_file_is_read_when_it_is_needed(tmp_path: Path) -> None:
    login = Login("ann", password_file=str(tmp_path / "pw"))
    with pytest.raises(Exception, match="password file: FileNotFoundError"):
        login.words()
    (tmp_path / "pw").write_text("s3cr3t\n")
    assert login.words() == ("ann", "s3cr3t")
    (tmp_path / "pw").write_text("rotated")
    assert login.words() == ("ann", "rotated")
    assert Login().words() == ()


@pytest.mark.skipif(shutil.which("openssl") is None, reason="no openssl command to make a key with")
def test_a_file_that_is_no_certificate_is_named(tmp_path: Path) -> None:
    key = tmp_path / "key.pem"
    subprocess.run(["openssl", "genpkey", "-algorithm", "ed25519", "-out", str(key)], check=True, capture_output=True)
    for parameter in ("ca", "cert"):
        with pytest.raises(ValueError, match=rf"{parameter} {key}"):
            parse(f"rediss://cache?{parameter}={key}")


def test_the_environment_says_what_a_query_can_say() -> None:
    environ = dict.fromkeys(PARTS, "") | {"SEAWALL_STORE_USER": "ann", "SEAWALL_STORE_PASSWORD": "p&s=#@/?%"}
    assert parse(joined("redis://cache/2", environ)) == single(Endpoint("cache"), 2, Login("ann", "p&s=#@/?%"))
    assert parse(joined("redis://cache?db=2", environ)) == single(Endpoint("cache"), 2, Login("ann", "p&s=#@/?%"))
    assert joined("memory", environ) == "memory"
    assert joined("redis://cache", {}) == "redis://cache"
    with pytest.raises(ValueError, match="username stands twice"):
        parse(joined("redis://bob@cache", environ))


def test_memory() -> None:
    assert open_store("memory", owner="w").healthy
