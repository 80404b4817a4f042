"""Faults that a test asks the engine for. One document is in force at a time; its parts add up."""

import asyncio
from typing import Annotated

import msgspec
from msgspec import Meta

Count = Annotated[int, Meta(ge=0)]
Status = Annotated[int, Meta(ge=400, le=599)]


class Error(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """An answer in place of the real one; `retry_after` in whole seconds."""

    status: Status
    retry_after: Count | None = None


class WrongUsage(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The numbers that the engine claims; those left out stay true."""

    prompt_tokens: Count | None = None
    completion_tokens: Count | None = None


class Fault(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What goes wrong with the next `times` requests, or with all until it is cleared."""

    slow: Annotated[float, Meta(gt=0)] | None = None
    """Multiply all service times."""
    hang: bool | Count = False
    """Say nothing more while the slot stays taken: true before the headers, N after N stream chunks."""
    hold: Count | None = None
    """Say nothing more after N stream chunks until the fault is replaced or cleared; then go on."""
    error: Status | Error | None = None
    """Answer with this status, at once."""
    cut: Count | None = None
    """Drop the connection after N stream chunks, or amid the body of an answer that is not streamed."""
    wrong_usage: WrongUsage | None = None
    no_usage: bool = False
    times: Annotated[int, Meta(ge=1)] | None = None

    @property
    def hangs_after(self) -> int | None:
        """After how many chunks it hangs: -1 before the headers, None never."""
        if isinstance(self.hang, bool):
            return -1 if self.hang else None
        return self.hang

    @property
    def refusal(self) -> Error | None:
        """The error in its long form."""
        return Error(self.error) if isinstance(self.error, int) else self.error


NONE = Fault()


class Faults:
    """The fault in force, counted down."""

    def __init__(self) -> None:
        self.current = NONE
        self.over = asyncio.Event()
        """Set when the fault that is in force now has been replaced or cleared."""

    def put(self, document: bytes) -> Fault:
        """Replace the fault by a JSON document; `msgspec.ValidationError` or `DecodeError` names what is wrong."""
        self._become(msgspec.json.decode(document, type=Fault))
        return self.current

    def clear(self) -> None:
        """Work normally again."""
        self._become(NONE)

    def _become(self, fault: Fault) -> None:
        self.over.set()
        self.current, self.over = fault, asyncio.Event()

    def take(self) -> Fault:
        """Return the fault for one request."""
        fault = self.current
        if fault.times is not None:
            left = fault.times - 1
            self.current = msgspec.structs.replace(fault, times=left) if left else NONE
        return fault
