import pytest

from seawall.store import open_control, open_store
from seawall.store.address import Address, parse


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("redis://", Address()),
        ("redis://cache", Address(host="cache")),
        ("REDIS://cache:1234/7", Address(host="cache", port=1234, db=7)),
        ("redis://[::1]:1234", Address(host="::1", port=1234)),
        ("redis://cache?db=3", Address(host="cache", db=3)),
        ("redis://:p%40ss%23@cache", Address(host="cache", password="p@ss#")),
        ("redis://ann:pw@cache:1/2", Address(host="cache", port=1, db=2, username="ann", password="pw")),
        ("unix:///run/redis.sock", Address(path="/run/redis.sock")),
        ("unix:///run/redis.sock?db=2&password=pw", Address(path="/run/redis.sock", db=2, password="pw")),
        ("unix://ann:pw@/run/redis.sock", Address(path="/run/redis.sock", username="ann", password="pw")),
    ],
)
def test_urls(url: str, address: Address) -> None:
    assert parse(url) == address


@pytest.mark.parametrize(
    "url",
    [
        "",
        "s3cr3t",
        "redis:s3cr3t",
        "http://u:s3cr3t@cache",
        "redis://u:s3cr3t@cache:port",
        "redis://u:s3cr3t@cache:99999",
        "redis://u:s3cr3t@cache:0",
        "redis://u:s3cr3t@cache/db",
        "redis://u:s3cr3t#x@cache",
        "redis://u:s3cr3t@[cache",
        "redis://cache?passwort=s3cr3t",
        "unix://u:s3cr3t@run/redis.sock",
        "unix://relative?password=s3cr3t",
        "unix:///run/redis.sock?db=-1&password=s3cr3t",
        "rediss://u:s3cr3t@cache",
        "redis+sentinel://u:s3cr3t@cache",
        "memory://s3cr3t",
    ],
)
def test_other_urls_are_refused_by_what_is_allowed_and_never_repeated(url: str) -> None:
    for attempt in (lambda: open_store(url, owner="w"), lambda: open_control(url)):
        with pytest.raises(ValueError, match="allowed: memory, redis://") as refused:
            attempt()
        assert "s3cr3t" not in str(refused.value)
        assert refused.value.__suppress_context__ or refused.value.__context__ is None


def test_what_comes_later_is_named() -> None:
    with pytest.raises(ValueError, match=r"rediss:// \(TLS\) is not supported yet"):
        parse("rediss://cache")


def test_an_address_shows_no_password() -> None:
    address = parse("redis://ann:s3cr3t@[::1]:1/2")
    assert str(address) == "redis://[::1]:1/2"
    assert "s3cr3t" not in repr(address)
    assert str(parse("unix://:s3cr3t@/run/s?db=2")) == "unix:///run/s?db=2"


def test_memory() -> None:
    assert open_store("memory", owner="w").healthy
