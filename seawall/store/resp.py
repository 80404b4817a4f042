"""Commands as bytes in Redis' protocol (RESP2). Replies are read by hiredis."""


def bulk(part: bytes) -> bytes:
    """Write one argument."""
    return b"$%d\r\n%b\r\n" % (len(part), part)


def command(*parts: bytes) -> bytes:
    """Write one command."""
    return b"*%d\r\n%b" % (len(parts), b"".join([bulk(part) for part in parts]))
