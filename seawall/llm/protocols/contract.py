"""What one API must tell the gate: where texts stand in its requests and answers, and how its streams are ended.

A protocol reads plain JSON values and gives plain values back: paths to change, or bytes to send.
"""

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple

from seawall.llm.spans import Path

MAX_FOLLOWED = 1024
"""Choices, blocks or items of one stream that are followed; those beyond pass and are not ended by us."""

Json = Mapping[str, Any]


class Family(StrEnum):
    """Whose error envelope a path speaks."""

    OPENAI = "openai"
    ANTHROPIC = "anthropic"


class End(StrEnum):
    """Why an answer is ended by us: in the words of OpenAI's finish_reason, `max_tokens` and `refusal` at Anthropic."""

    LENGTH = "length"
    CONTENT = "content_filter"


class Text(NamedTuple):
    """A text of a request: where its JSON string stands, and what it says."""

    path: Path
    text: str


class Delta(NamedTuple):
    """A piece of generated text. Pieces of one channel (`0`, `0/reasoning`, `0/tool/1`) joined are one text."""

    channel: str
    path: Path
    text: str


class Tokens(NamedTuple):
    """Tokens as they are told to a client at the end of a stream that we end."""

    input: int
    output: int


@dataclass(frozen=True, slots=True)
class Origin:
    """What an answer of ours calls itself. `created` is in seconds since 1970, 0 where that isn't known."""

    id: str
    model: str
    created: int = 0


class Stream(ABC):
    """Follows one stream, so that it can be ended after any event as its protocol ends it.

    `take` says that an event goes to the client: one that is not sent must not be taken.
    """

    __slots__ = ()

    @abstractmethod
    def take(self, event: Json) -> None:
        """The event goes to the client."""

    @abstractmethod
    def end(self, why: End, tokens: Tokens | None) -> bytes:
        """The events that end the stream here. `tokens` None: the client didn't ask, where it has to ask."""

    def is_indifferent(self, data: bytes) -> bool:
        """Whether an event, of which only the bytes are looked at, surely doesn't change what an end has to say."""
        return False

    def unfinished(self, event: Json) -> dict[Path, Any]:
        """Changes that take an end out of an event which is cut: the end that we send is the only one then."""
        return {}


Texts = list[tuple[Path, str]]
"""Generated texts of a whole answer with their places, in the order in which they are read."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One API.

    `generates`: it takes a body and a slot. `cap_fields` hold the client's cap on output tokens, the one that wins
    first; a cap of ours is written into those that the client used, else into `cap_default`, the one that every engine
    knows. `required` must be there; `prompt_fields` are checked for their type where they are there. `usage_asked`: a
    stream tells usage only if the client asks by `stream_options`. `choices`: it knows `n` and logprobs. `model_paths`
    are where answers and events name the model.

    `texts` gives the texts of a request, `deltas` the generated texts in an event of a stream, `stream` makes what follows
    a stream (its origin, the client's `n`). `spoken`
    gives the texts of a whole answer, `ended` the changes that tell why those at some paths were cut. `static` writes a
    whole answer of ours: a text, streamed or not, with its tokens. Before a delta's text there nearly always stands
    `needle`.
    """

    name: str
    family: Family
    generates: bool
    cap_fields: tuple[str, ...] = ()
    cap_default: str | None = None
    prompt_fields: tuple[str, ...] = ()
    required: tuple[str, ...] = ()
    usage_asked: bool = False
    choices: bool = False
    logprobs: tuple[str, ...] = ()
    model_paths: tuple[Path, ...] = (("model",),)
    texts: "Callable[[Json], Iterator[Text]] | None" = None
    deltas: "Callable[[Json], list[Delta]] | None" = None
    stream: "Callable[[Origin, int], Stream] | None" = None
    spoken: "Callable[[Json], Texts] | None" = None
    ended: "Callable[[Json, Sequence[Path], End], dict[Path, Any]] | None" = None
    needle: bytes = b""
    static: "Callable[[Origin, str, bool, Tokens | None], bytes] | None" = None


def sse(events: Iterable[Json], *, named: bool = False) -> bytes:
    """Write events, with their `type` as name where the protocol names them."""
    written = []
    for event in events:
        if named:
            written.append(f"event: {event['type']}\n")
        written.append(f"data: {dumps(event)}\n\n")
    return "".join(written).encode("utf-8", "backslashreplace")


def dumps(value: object) -> str:
    """JSON as our own answers have it."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def dicts(value: Any) -> Iterator[tuple[int, dict[str, Any]]]:
    """Elements of a list that are objects, with their indices; nothing for what is no list."""
    if isinstance(value, list):
        for i, element in enumerate(value):
            if isinstance(element, dict):
                yield i, element


def strings(value: Any, path: Path) -> Iterator[Text]:
    """A text, or the texts of a list of texts."""
    if isinstance(value, str):
        yield Text(path, value)
    elif isinstance(value, list):
        for i, element in enumerate(value):
            if isinstance(element, str):
                yield Text((*path, i), element)


_NOT_TEXT = frozenset(
    {"type", "role", "id", "name", "call_id", "tool_use_id", "tool_call_id", "media_type", "mime_type"}
)
_DATA = frozenset({"image_url", "input_audio", "file", "input_image", "source", "video_url", "audio_url", "file_data"})


def all_strings(value: Any, path: Path) -> Iterator[Text]:
    """Every text below a value: tools, schemas, arguments of tool calls."""
    return parts(value, path, frozenset())


def parts(value: Any, path: Path, skip: frozenset[str] = _NOT_TEXT | _DATA) -> Iterator[Text]:
    """Texts of a content: a string, or parts that hold texts in whatever member; names, ids and media are none."""
    stack: list[tuple[Any, Path]] = [(value, path)]
    while stack:
        inner, at = stack.pop()
        if isinstance(inner, str):
            yield Text(at, inner)
        elif isinstance(inner, list):
            stack += [(element, (*at, i)) for i, element in reversed(list(enumerate(inner)))]
        elif isinstance(inner, dict):
            stack += [(element, (*at, name)) for name, element in reversed(inner.items()) if name not in skip]
