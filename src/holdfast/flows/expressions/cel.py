"""The CEL library: programs, its errors in plain words, and its values as those of JSON, bounded."""

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
"""Values in one result. Lists may share their items, so a short expression can stand for billions of them."""

TOO_LARGE: Final = "it reads an integer of more than 64 bits, which CEL does not have; do it in an activity"
SHOWN_CHARACTERS: Final = 300
LONGEST_RESULT_CHARACTERS: Final = 2 * MEBIBYTE
"""Of an answer of the library, which may repeat the whole input."""

_PLACE: Final = re.compile(r"ERROR: <input>:(\d+):(\d+): (?:Syntax error: )?(.*)")
_UNEXPECTED: Final = re.compile(
    r"mismatched input|extraneous input|no viable alternative at input|token recognition error at:"
)
_STATUS: Final = re.compile(r"^[A-Z_]+: | \[[A-Z_]+\]$")
_KEY: Final = re.compile(r"Key not found in map : (.*)")
_NAME: Final = re.compile(r'No value with name "(.*)" found')
_OVERLOAD: Final = re.compile(r"No matching overloads found : (.*)")
_OPERATORS: Final = {"and": "&&", "or": "||", "not": "!", "is": "=="}
"""What Python's operators are in CEL."""
_TYPE_WORDS: Final = {"int64": "int", "uint64": "uint", "null_type": "null"}


class Program:
    """A compiled program. It can run any number of times."""

    __slots__ = ("_compiled",)

    def __init__(self, compiled: Any) -> None:
        self._compiled = compiled

    def run(self, variables: dict[str, Any]) -> Any:
        """Its value with these variables."""
        try:
            answer = self._compiled.eval(data=variables)
        except RuntimeError as error:
            raise ExpressionError(_in_plain_words(str(error))) from None
        if answer.type() == cel.Type.ERROR:
            raise ExpressionError(_in_plain_words(str(answer.value())))
        return _Reader().plain(answer.value(), 0)


@cache
def _environment() -> Any:
    return cel.NewEnv()


def compile_program(text: str) -> Program:
    """`text` as a program. The library allows a nesting of 32 and reads every value as one of any type."""
    try:
        return Program(_environment().compile(text, disable_check=True))
    except RuntimeError as error:
        raise _syntax_error(str(error), text) from None
    except TypeError:  # a lone surrogate
        raise ExpressionError("it has a character that is not valid Unicode") from None


def _syntax_error(answer: str, text: str) -> ExpressionError:
    """The first complaint of the library, without the list of everything that it would have liked."""
    found = _PLACE.search(answer)
    if found is None:
        return ExpressionError(_in_plain_words(answer))
    line, column, message = int(found[1]), int(found[2]), found[3]
    message = _UNEXPECTED.sub("unexpected", message.partition(" expecting ")[0]).replace("'<EOF>'", "the end")
    if "recursion depth" in message:
        return ExpressionError("it is nested too deep, or too long; divide it")
    if message.startswith("unexpected '="):
        message = "one = alone; to compare, write =="
    elif text.lstrip().startswith(("${", "{{")):
        message = "an expression stands alone, without ${ } or {{ }} around it"
    elif (meant := _operator_meant(text, column)) and line == 1:
        message = f"{message}; {meant}"
    before = sum(len(one) + 1 for one in text.split("\n")[: line - 1])
    return ExpressionError(message, column=before + column)


def _operator_meant(text: str, column: int) -> str:
    """What to write for an operator of Python's at or before a column, if there is one."""
    before, here = text[: column - 1].split(), re.match(r"\w+", text[column - 1 :])
    for word in (here[0] if here else "", before[-1] if before else ""):
        if word in _OPERATORS:
            return f"write {_OPERATORS[word]} for {word}"
    return ""


def _in_plain_words(answer: str) -> str:
    """What the library says went wrong, as a sentence for whoever wrote the expression."""
    answer = _STATUS.sub("", _STATUS.sub("", answer))
    if found := _KEY.search(answer):
        return f"there is no {found[1]} in the map"
    if found := _NAME.search(answer):
        return f"there is no {found[1]}"
    if "out of range for '" in answer:
        return TOO_LARGE
    if "recursion limit" in answer:
        return "it is nested too deep, or too long; divide it"
    if "Applying SELECT" in answer:
        return "a field was asked of something that has none, such as null"
    if "Iteration budget" in answer:
        return "its loops go round too often; do it in an activity"
    if found := _OVERLOAD.search(answer):
        return _overload(found[1])
    return answer if len(answer) <= SHOWN_CHARACTERS else f"{answer[:SHOWN_CHARACTERS]}..."


def _overload(signature: str) -> str:
    """An operation that the types of its values do not have, such as ``_>_(null_type, int64)``."""
    name, _, types = signature.partition("(")
    if name == "<iter_range>":
        return "only a list or a map can be gone through"
    if name == "<jump_condition>":
        return "what is asked with ? must be true or false"
    operator = name.replace("_", " ").strip() if not name[:1].isalpha() else name
    words = [_TYPE_WORDS.get(word, word) for word in types.rstrip(")").split(", ")] if types else []
    return f"{operator} does not work with {' and '.join(words)}" if words else f"{operator} does not work with this"


class _Reader:
    """Turns a result into plain values, as long as there are not too many of them."""

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

    def _map(self, several: Mapping[Any, Any], depth: int) -> dict[str, Any]:
        plain: dict[str, Any] = {}
        for key, value in several.items():
            if not isinstance(key, str):
                raise ExpressionError(f"its result has a map with the key {key!r}, and JSON has only texts as keys")
            plain[self._text(key)] = self.plain(value.value(), depth + 1)
        return dict(sorted(plain.items(), key=itemgetter(0)))  # the library has another order in every process

    def _text(self, text: str) -> str:
        self._characters += len(text)
        if self._characters > LONGEST_RESULT_CHARACTERS:
            raise ExpressionError(f"its result has more than {LONGEST_RESULT_CHARACTERS:,} characters")
        return text


def _finite(value: float) -> float:
    if not math.isfinite(value):
        raise ExpressionError("its result is no finite number")
    return value
