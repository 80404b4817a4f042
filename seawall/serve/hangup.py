"""SIGHUP has two meanings: whoever sends it wants a restart; the kernel sends it when the terminal has gone."""

import os
import signal


class Terminal:
    """The terminal that we were started in, if any."""

    def __init__(self) -> None:
        # Under nohup(1) the end of the terminal is nothing to us.
        self._ours = signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN and has_terminal()

    def gone(self) -> bool:
        """Say whether we had a terminal and have none any more: then SIGHUP means to stop."""
        return self._ours and not has_terminal()


def has_terminal() -> bool:
    """Say whether this process has a controlling terminal that still works (tty(4))."""
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY))
    except OSError:
        return False
    return True
