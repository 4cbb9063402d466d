"""What msgspec does not know by itself: pydantic models, when the user's program uses pydantic.

Pydantic is never imported here. A value or a type can only be a model if the program has imported pydantic
already, so `sys.modules` answers the question.
"""

import sys
from typing import Any, TypeGuard

import msgspec

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
    raise NotImplementedError(f"{type(value).__qualname__} is no JSON type")


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
