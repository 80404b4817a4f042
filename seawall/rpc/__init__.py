"""gRPC as our services see it: a small contract of bytes in and bytes out, and the transports that carry it."""
