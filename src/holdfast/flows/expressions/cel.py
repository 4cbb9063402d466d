"""The CEL library: compiled programs, its errors as messages for authors of flows, and its values as bounded JSON."""

import math
import re
from collections.abc import Mapping
from datetime import datetime, timedelta
from functools import cache
from operator import itemgetter
from typing import Any, Final

from holdfast.errors import ExpressionError
from holdfast.flows.libraries import cel
from holdfast.payloads.limits import MAX_DEPTH, MEBIBYTE

MOST_VALUES: Final = 100_000
"""Values in one result. Lists can share their items, so a short expression can give billions of values."""

TOO_LARGE: Final = "it reads an integer of more than 64 bits, which CEL does not have; do it in an activity"
SHOWN_CHARACTERS: Final = 300
LONGEST_RESULT_CHARACTERS: Final = 2 * MEBIBYTE
"""Of one result, which can repeat the whole input."""

_PLACE: Final = re.compile(r"ERROR: <input>:(\d+):(\d+): (?:Syntax error: )?(.*)")
_UNEXPECTED: Final = re.compile(
    r"mismatched input|extraneous input|no viable alternative at input|token recognition error at:"
)
_STATUS: Final = re.compile(r"^[A-Z_]+: | \[[A-Z_]+\]$")
_KEY: Final = re.compile(r"Key not found in map : (.*)")
_NAME: Final = re.compile(r'No value with name "(.*)" found')
_OVERLOAD: Final = re.compile(r"No matching overloads found : (.*)")
_INDEX: Final = re.compile(r"Index error: index=(-?\d+) size=(\d+)")
_CONTAINER: Final = re.compile(r"Invalid container type: '(.*)'")
_MISSING_PART: Final = ("Applying SELECT", "Index error", "Invalid container type")
_OPERATORS: Final = {"and": "&&", "or": "||", "not": "!", "is": "=="}
"""Operators of Python, and those of CEL for the same."""
_TYPE_WORDS: Final = {"int64": "int", "uint64": "uint", "null_type": "null"}


class MissingPart(ExpressionError):
    """A field or an item is read of a value that does not have it. `CelExpression` names the field."""


class Program:
    """A compiled program, which can run any number of times."""

    __slots__ = ("_compiled",)

    def __init__(self, compiled: Any) -> None:
        self._compiled = compiled

    def run(self, variables: dict[str, Any]) -> Any:
        """Its value with these variables, as JSON."""
        try:
            result = self._compiled.eval(data=variables)
        except RuntimeError as error:
            raise _evaluation_error(str(error)) from None
        if result.type() == cel.Type.ERROR:
            raise _evaluation_error(str(result.value()))
        return _Reader().plain(result.value(), 0)


@cache
def _environment() -> Any:
    return cel.NewEnv()


def compile_program(text: str) -> Program:
    """`text` as a program. The library allows a nesting of 32; its type checker is off."""
    try:
        return Program(_environment().compile(text, disable_check=True))
    except RuntimeError as error:
        raise _syntax_error(str(error), text) from None
    except TypeError:  # a lone surrogate
        raise ExpressionError("it has a character that is not valid Unicode") from None


def _syntax_error(report: str, text: str) -> ExpressionError:
    """The first error of the library, without its list of expected tokens."""
    found = _PLACE.search(report)
    if found is None:
        return ExpressionError(_explained(report))
    line = int(found[1])
    column = int(found[2])
    message = _UNEXPECTED.sub("unexpected", found[3].partition(" expecting ")[0]).replace(
        "'<EOF>'", "end of the expression"
    )
    if "recursion depth" in message:
        return ExpressionError("it is nested too deep, or too long; split it")
    if message.startswith("unexpected '="):
        message = "a single =; to compare, write =="
    elif text.lstrip().startswith(("${", "{{")):
        message = "an expression is written without ${ } or {{ }} around it"
    elif (meant := _operator_meant(text, column)) and line == 1:
        message = f"{message}; {meant}"
    before = sum(len(one) + 1 for one in text.split("\n")[: line - 1])
    return ExpressionError(message, column=before + column)


def _operator_meant(text: str, column: int) -> str:
    """The advice for an operator of Python at or before a column, if there is one."""
    before = text[: column - 1].split()
    here = re.match(r"\w+", text[column - 1 :])
    for word in (here[0] if here else "", before[-1] if before else ""):
        if word in _OPERATORS:
            return f"write {_OPERATORS[word]} for {word}"
    return ""


def _evaluation_error(report: str) -> ExpressionError:
    kind = MissingPart if any(words in report for words in _MISSING_PART) else ExpressionError
    return kind(_explained(report))


def _explained(report: str) -> str:
    """An error of the library as a message for the author of the expression."""
    report = _STATUS.sub("", _STATUS.sub("", report))
    if found := _KEY.search(report):
        return f"there is no {found[1]} in the mapping"
    if found := _NAME.search(report):
        return f"there is no {found[1]}"
    if "out of range for '" in report:
        return TOO_LARGE
    if "recursion limit" in report:
        return "it is nested too deep, or too long; split it"
    if found := _INDEX.search(report):
        return f"there is no [{found[1]}] in a list of {found[2]}"
    if "Index error" in report:
        return "the index of a list must be an integer"
    if found := _CONTAINER.search(report):
        return f"only a list or a mapping has items, not {_TYPE_WORDS.get(found[1], found[1])}"
    if "Applying SELECT" in report:
        return "it reads a field of a value without fields, such as null"
    if "Iteration budget" in report:
        return "its loops have too many rounds; do it in an activity"
    if found := _OVERLOAD.search(report):
        return _overload(found[1])
    return report if len(report) <= SHOWN_CHARACTERS else f"{report[:SHOWN_CHARACTERS]}..."


def _overload(signature: str) -> str:
    """The message for an operation on values of the wrong types, such as ``_>_(null_type, int64)``."""
    name, _, types = signature.partition("(")
    if name == "<iter_range>":
        return "only a list or a mapping has items to go over"
    if name == "<jump_condition>":
        return "the condition before ? must be true or false"
    operator = name.replace("_", " ").strip() if not name[:1].isalpha() else name
    words = [_TYPE_WORDS.get(word, word) for word in types.rstrip(")").split(", ")] if types else []
    return f"{operator} does not work with {' and '.join(words)}" if words else f"{operator} does not work with this"


class _Reader:
    """Turns a result into plain values, up to a number of values and characters."""

    def __init__(self) -> None:
        self._values = 0
        self._characters = 0

    def plain(self, value: Any, depth: int) -> Any:
        self._values += 1
        if self._values > MOST_VALUES or depth > MAX_DEPTH:
            raise ExpressionError(f"its result has more than {MOST_VALUES:,} values, or nests deeper than {MAX_DEPTH}")
        if value is None or isinstance(value, bool | int):
            return value
        if isinstance(value, str):
            return self._text(value)
        if isinstance(value, float):
            return _finite(value)
        if isinstance(value, list):
            return [self.plain(item.value(), depth + 1) for item in value]  # pyright: ignore[reportUnknownVariableType, reportUnknownMemberType, reportUnknownArgumentType]  # values of the library
        if isinstance(value, dict):
            return self._map(value, depth)  # pyright: ignore[reportUnknownArgumentType]  # values of the library
        if isinstance(value, timedelta):
            return value.total_seconds()
        if isinstance(value, datetime):
            return value.isoformat().replace("+00:00", "Z")
        raise ExpressionError(f"its result has a {type(value).__name__}, which JSON cannot hold")

    def _map(self, mapping: Mapping[Any, Any], depth: int) -> dict[str, Any]:
        plain: dict[str, Any] = {}
        for key, value in mapping.items():
            if not isinstance(key, str):
                raise ExpressionError(f"its result has a mapping with the key {key!r}, and keys in JSON are strings")
            plain[self._text(key)] = self.plain(value.value(), depth + 1)
        # the order of the library differs from process to process
        return dict(sorted(plain.items(), key=itemgetter(0)))

    def _text(self, text: str) -> str:
        self._characters += len(text)
        if self._characters > LONGEST_RESULT_CHARACTERS:
            raise ExpressionError(f"its result has more than {LONGEST_RESULT_CHARACTERS:,} characters")
        return text


def _finite(value: float) -> float:
    if not math.isfinite(value):
        raise ExpressionError("its result is not a finite number")
    return value
