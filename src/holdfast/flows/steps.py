"""What the builder's methods give: steps to come after, and references to what they will have given."""

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import IntEnum
from typing import Any, TypeAlias, cast

from holdfast.core.flow.definition import After
from holdfast.errors import InvalidOption
from holdfast.flows.scanner import KEYWORDS


class _Binding(IntEnum):
    """How tightly the outermost operator of an expression binds in CEL. What binds more loosely needs brackets."""

    OR = 0
    AND = 1
    COMPARISON = 2
    NOT = 3
    PATH = 4


class ExpressionRef:
    """An expression that is written in Python: ``fox.output.energy > 3``. It has a value once the flow runs.

    Fields are attributes or items; ``&``, ``|`` and ``~`` stand for and, or and not. ``str()`` is the expression.
    """

    __slots__ = ("_binding", "_text")

    def __init__(self, text: str, binding: _Binding = _Binding.PATH) -> None:
        self._text = text
        self._binding = binding

    def __getattr__(self, name: str) -> "ExpressionRef":
        if name.startswith("__"):
            raise AttributeError(name)  # what Python itself asks for is no field
        return self[name]

    def __getitem__(self, key: str | int) -> "ExpressionRef":
        whole = self._inside(_Binding.PATH)
        if isinstance(key, str) and key.isidentifier() and key.isascii() and key not in KEYWORDS:
            return ExpressionRef(f"{whole}.{key}")
        return ExpressionRef(f"{whole}[{literal(key)}]")

    def __eq__(self, other: object) -> "ExpressionRef":  # type: ignore[override]  # it is decided when the flow runs
        return self._compared("==", other)

    def __ne__(self, other: object) -> "ExpressionRef":  # type: ignore[override]  # it is decided when the flow runs
        return self._compared("!=", other)

    def __lt__(self, other: object) -> "ExpressionRef":
        return self._compared("<", other)

    def __le__(self, other: object) -> "ExpressionRef":
        return self._compared("<=", other)

    def __gt__(self, other: object) -> "ExpressionRef":
        return self._compared(">", other)

    def __ge__(self, other: object) -> "ExpressionRef":
        return self._compared(">=", other)

    def __and__(self, other: "ExpressionRef | bool") -> "ExpressionRef":
        return ExpressionRef(f"{self._inside(_Binding.AND)} && {_condition(other, '&')}", _Binding.AND)

    def __or__(self, other: "ExpressionRef | bool") -> "ExpressionRef":
        left = self._text if self._binding is _Binding.OR else f"({self._text})"
        return ExpressionRef(f"{left} || {_condition(other, '|', always=True)}", _Binding.OR)

    def __invert__(self) -> "ExpressionRef":
        return ExpressionRef(f"!({self._text})", _Binding.NOT)

    def __iter__(self) -> Iterator["ExpressionRef"]:
        raise TypeError(f"{self._text} has a value when the flow runs; to go over its items, give a step each=...")

    def __bool__(self) -> bool:
        raise InvalidOption(f"{self._text} is decided when the flow runs; combine conditions with &, | and ~")

    def __hash__(self) -> int:
        return hash(self._text)

    def __str__(self) -> str:
        return self._text

    def __repr__(self) -> str:
        return f"Reference({self._text!r})"

    def _compared(self, operator: str, other: object) -> "ExpressionRef":
        return ExpressionRef(f"{self._inside(_Binding.NOT)} {operator} {_operand(other)}", _Binding.COMPARISON)

    def _inside(self, least: _Binding) -> str:
        """Its text as a part of another expression, in brackets if it binds less than that needs."""
        return self._text if self._binding >= least else f"({self._text})"


class NodeRef:
    """An activity of a flow that is being built. Its `input`, `output` and `error` can be read by those behind it."""

    def __init__(self, node_id: str) -> None:
        self.id = node_id
        self.input = ExpressionRef(f"{node_id}.input")
        self.output = ExpressionRef(f"{node_id}.output")
        self.error = ExpressionRef(f"{node_id}.error")

    def failed(self, *errors: type[BaseException] | str) -> After:
        """The edge that is taken if it fails with one of these errors; without any, with whatever it fails."""
        return After(self.id, catch=tuple(_error_name(error) for error in errors) or ("Exception",))

    def when(self, condition: "str | ExpressionRef") -> After:
        """The edge that is taken if it completes and the condition holds."""
        return After(self.id, when=str(condition))

    def otherwise(self) -> After:
        """The edge that is taken if it completes and no edge with a condition was."""
        return After(self.id, otherwise=True)

    def __repr__(self) -> str:
        return f"Step({self.id!r})"


EdgeArgument: TypeAlias = str | NodeRef | After
EdgeArguments: TypeAlias = EdgeArgument | Sequence[EdgeArgument]
"""What a step comes after: ids, steps, and edges that steps make, such as ``fox.failed(TooTired)``."""


def _error_name(error: object) -> str:
    if isinstance(error, type) and issubclass(error, BaseException):
        return error.__name__
    if isinstance(error, str) and error:
        return error
    raise InvalidOption(f"failed() takes exception types or their names, not {error!r}")


def edges_of(after: EdgeArguments) -> list[After]:
    """The edges that a step was given."""
    if isinstance(after, Iterable) and not isinstance(after, str | Mapping | ExpressionRef):
        return [_edge(one) for one in after]
    return [_edge(after)]


def _edge(one: object) -> After:
    match one:
        case After():
            return one
        case NodeRef():
            return After(one.id)
        case str():
            return After(one)
        case _:
            raise InvalidOption(f"after takes steps, their ids, or edges such as step.failed(), not {one!r}")


def literal(value: object) -> str:
    """A value as an expression that gives it: a text in quotes, a list in brackets."""
    match value:
        case ExpressionRef():
            return str(value)
        case float() if not math.isfinite(value):
            raise InvalidOption(f"an expression holds finite numbers only, not {value!r}")
        case None | bool() | int() | float() | str():
            return json.dumps(value, ensure_ascii=False, allow_nan=False)
        case list() | tuple():
            return f"[{', '.join(map(literal, cast(Sequence[Any], value)))}]"
        case dict():
            fields = cast(dict[str, Any], value).items()
            return f"{{{', '.join(f'{literal(str(key))}: {literal(one)}' for key, one in fields)}}}"
        case _:
            raise InvalidOption(f"an expression cannot hold {value!r}")


def _operand(value: object) -> str:
    return value._inside(_Binding.PATH) if isinstance(value, ExpressionRef) else literal(value)  # noqa: SLF001  # one of us


def _condition(value: object, operator: str, *, always: bool = False) -> str:
    """What stands on the right of ``&`` and ``|``."""
    if not isinstance(value, ExpressionRef | bool):
        raise InvalidOption(f"{operator} combines conditions such as (step.output > 3), and {value!r} is none")
    return f"({literal(value)})" if always else _operand(value)
