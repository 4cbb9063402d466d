"""Models and constraints of pydantic, when the user's program uses pydantic.

Pydantic is never imported here. A value or a type can only be a model if the program has imported pydantic
already, so `sys.modules` is enough.
"""

import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager
from types import UnionType
from typing import Annotated, Any, Final, Literal, TypeGuard, Union, get_args, get_origin

import msgspec

from holdfast.errors import AnnotationError

_LIBRARIES: Final = ("pydantic", "annotated_types")
_CONSTRAINTS: Final = ("gt", "ge", "lt", "le", "multiple_of", "min_length", "max_length", "pattern")
"""Constraints that msgspec can check, by their names in pydantic and annotated_types."""


class _Constraints(threading.local):
    ignored = False


_constraints: Final = _Constraints()

_encode_plain = msgspec.json.Encoder().encode


def is_model_type(annotation: object) -> TypeGuard[type[Any]]:
    """Whether `annotation` is a class of pydantic models."""
    pydantic = sys.modules.get("pydantic")
    return pydantic is not None and isinstance(annotation, type) and issubclass(annotation, pydantic.BaseModel)


def encode_unknown(value: Any) -> msgspec.Raw:
    """Hook of the encoder: a model writes its own JSON, by alias and so that it can read it again."""
    if is_model_type(value.__class__):
        text: str = value.model_dump_json(by_alias=True, round_trip=True)
        return msgspec.Raw(text.encode())
    raise NotImplementedError(f"{type(value).__qualname__} is not a JSON type")


def decode_unknown(expected: type[Any], value: Any) -> Any:
    """Hook of the decoder: a model reads JSON itself, as its strict mode treats JSON and Python differently.

    The error names the field and leaves out the value, which may be a secret.
    """
    if expected is object:
        return value
    try:
        return expected.model_validate_json(_encode_plain(value))
    except ValueError as error:
        raise ValueError(_summary(error)) from error


def _summary(error: ValueError) -> str:
    if not (errors := getattr(error, "errors", None)):
        return str(error)
    lines: list[str] = []
    for detail in errors(include_url=False, include_input=False):
        field = ".".join(str(step) for step in detail["loc"]) or "model"
        lines.append(f"field `{field}`: {detail['msg']}")
    return "; ".join(lines)


@contextmanager
def constraints_ignored(ignored: bool) -> Generator[None]:
    """In this thread, whether values that break a constraint of an annotation (see `with_constraints`) are accepted."""
    before = _constraints.ignored
    _constraints.ignored = ignored
    try:
        yield
    finally:
        _constraints.ignored = before


def are_constraints_ignored() -> bool:
    """Whether constraints are ignored in this thread."""
    return _constraints.ignored


def is_field(value: object) -> bool:
    """Whether `value` is a ``Field(...)`` of pydantic."""
    pydantic = sys.modules.get("pydantic")
    return pydantic is not None and isinstance(value, pydantic.fields.FieldInfo)


def with_constraints(annotation: Any) -> Any:
    """`annotation` with constraints such as ``Annotated[int, Field(gt=0)]`` as those of msgspec, which checks them.

    A constraint that msgspec cannot check is an `AnnotationError`: it must not be ignored.
    """
    if not any(library in sys.modules for library in _LIBRARIES):
        return annotation
    origin = get_origin(annotation)
    arguments = get_args(annotation)
    if not arguments or origin is Literal:
        return annotation
    if origin is Annotated:
        base, *metadata = arguments
        checked = _checked_by_msgspec(annotation, metadata)
        return Annotated[(with_constraints(base), *checked)] if checked else with_constraints(base)
    translated = tuple(with_constraints(argument) for argument in arguments)
    if all(new is old for new, old in zip(translated, arguments, strict=True)):
        return annotation
    if origin in (Union, UnionType):
        return Union[translated]  # noqa: UP007 - of a tuple
    return annotation.copy_with(translated) if hasattr(annotation, "copy_with") else origin[translated]


def _checked_by_msgspec(annotation: Any, metadata: list[Any]) -> list[Any]:
    kept: list[Any] = []
    demanded: dict[str, Any] = {}
    for each in metadata:
        if is_field(each):
            constraints = each.metadata
        elif type(each).__module__.partition(".")[0] in _LIBRARIES:
            constraints = [each]
        else:
            kept.append(each)
            continue
        for constraint in constraints:
            found = {name: value for name in _CONSTRAINTS if (value := getattr(constraint, name, None)) is not None}
            if not found or set(getattr(constraint, "__dict__", ())) - set(found):
                raise AnnotationError(
                    f"`{annotation}` demands {constraint!r}, which is not checked for a single parameter; "
                    "make the value a field of a pydantic model, or check it in the body"
                )
            demanded |= found
    return [*kept, msgspec.Meta(**demanded)] if demanded else kept
