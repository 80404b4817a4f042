"""What systemd is told, by the protocol of sd_notify(3): one datagram of `NAME=value` lines to $NOTIFY_SOCKET.

Without systemd nothing is sent. A message that can't be sent is dropped: nobody's request depends on it.
"""

import contextlib
import socket
import time
from collections.abc import Mapping


class Notify:
    """Speaks for one process."""

    def __init__(self, environ: Mapping[str, str], pid: int):
        address = environ.get("NOTIFY_SOCKET", "")
        # A name that begins with @ is one of Linux's abstract ones.
        self._address = f"\0{address[1:]}" if address.startswith("@") else address
        usec, meant = environ.get("WATCHDOG_USEC", ""), environ.get("WATCHDOG_PID", str(pid))
        self.watchdog = int(usec) / 1e6 / 2 if self._address and usec.isdigit() and meant == str(pid) else None
        """Seconds between two signs of life, or None: half of what systemd waits for one."""

    def ready(self, status: str) -> None:
        """Tell that we serve, or serve again after `reloading`."""
        self._send(f"READY=1\nSTATUS={status}")

    def reloading(self, status: str) -> None:
        """Tell that a reload has begun."""
        self._send(f"RELOADING=1\nMONOTONIC_USEC={time.monotonic_ns() // 1000}\nSTATUS={status}")

    def stopping(self) -> None:
        """Tell that we end, and want no restart for it."""
        self._send("STOPPING=1\nSTATUS=draining")

    def alive(self) -> None:
        """Give the sign of life that the watchdog waits for."""
        self._send("WATCHDOG=1")

    def _send(self, text: str) -> None:
        if not self._address:
            return
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
            sock.setblocking(False)
            sock.sendto(text.encode(), self._address)
