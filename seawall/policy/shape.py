"""Hold a tree against a model, and say each mistake in the document's own words."""

from collections.abc import Iterator
from itertools import islice
from types import NoneType, UnionType
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from seawall.policy.document import Section, keys_of
from seawall.policy.mistake import MISTAKES_SHOWN, Mistake, Path, listing, nearest, path_text, shown
from seawall.policy.tree import Leaf, Node, find, place, plain_data

M = TypeVar("M", bound=Section)


def validate(model: type[M], root: Node | None, file: str, *, lenient: bool = False) -> tuple[M | None, list[Mistake]]:
    """Make the model of a tree, or find everything that keeps it from being one.

    `lenient` passes over keys that mean something on another level (`Section.misplaced`).
    """
    try:
        return model.model_validate(plain_data(root), context="lenient" if lenient else None), []
    except ValidationError as e:
        # One more than is shown, so that the list says that it was cut.
        errors = islice(e.errors(include_url=False, include_input=False), MISTAKES_SHOWN + 1)
        return None, [_mistake(model, root, file, error) for error in errors]


def _mistake(model: type[Section], root: Node | None, file: str, error: ErrorDetails) -> Mistake:
    at_key = error["loc"][-1:] == ("[key]",)
    path: Path = error["loc"][:-1] if at_key else error["loc"]
    where = path_text(path)
    kind, context = error["type"], error.get("ctx", {})
    if kind == "extra_forbidden":
        known = list(keys_of(_model_at(model, path[:-1])))
        line, column = place(root, path, key=True)
        return Mistake(file, line, column, where, None, "unknown key", listing(known), nearest(str(path[-1]), known))
    if kind == "missing":
        line, column = place(root, path)
        return Mistake(file, line, column, where, None, "is missing")
    line, column = place(root, path, key=at_key)
    text = str(path[-1]) if at_key else _scalar(find(root, path))
    value = shown(text) if text is not None and not _private(model, path) else None
    mean = nearest(text, context.get("options", ())) if value is not None and text is not None else None
    return Mistake(file, line, column, where, value, context.get("why", error["msg"]), context.get("allowed"), mean)


def _scalar(node: Node | None) -> str | None:
    return node.text if isinstance(node, Leaf) else None


def _steps(model: type[Section], path: Path) -> Iterator[tuple[Any, bool]]:
    """Yield the type at each step of a path, the root first, and whether its field is marked private."""
    here: Any = model
    yield here, False
    for part in path:
        marked = False
        if isinstance(here, type) and issubclass(here, BaseModel):
            info = keys_of(here).get(str(part))
            if info is None:
                return
            marked = isinstance(info.json_schema_extra, dict) and bool(info.json_schema_extra.get("private"))
            here = _bare(info.annotation)
        elif get_origin(here) in {dict, tuple}:
            arguments = get_args(here)
            here = _bare(arguments[1] if get_origin(here) is dict else arguments[0])
        else:
            return
        yield here, marked


def _bare(annotation: Any) -> Any:
    """Take Annotated and `| None` off a type."""
    while True:
        origin = get_origin(annotation)
        if origin is Annotated:
            annotation = get_args(annotation)[0]
        elif origin in {Union, UnionType}:
            annotation = next(a for a in get_args(annotation) if a is not NoneType)
        else:
            return annotation


def _model_at(model: type[Section], path: Path) -> type[BaseModel]:
    *_, (last, _marked) = _steps(model, path)
    return last if isinstance(last, type) and issubclass(last, BaseModel) else model


def _private(model: type[Section], path: Path) -> bool:
    return any(
        marked or (isinstance(here, type) and issubclass(here, Section) and here.private)
        for here, marked in _steps(model, path)
    )
