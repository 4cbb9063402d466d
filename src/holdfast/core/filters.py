"""The filter language: the text of a filter as a syntax tree (F4, F5).

`parse` reads ``state = FAILED and a.customer = "acme" and created > now - 1h``. Every error is an `InvalidFilter` with
the column. The tree has values only, no text of the filter, so that a store binds each value as a parameter. Relative
times stay relative in the tree; `at` replaces them by the times they stand for. `canonical` is the text of a tree, the
same for all spellings of one filter.

A test is true or false, never unknown: a test of a value that an instance does not have is false, and `not` negates it.
"""

import datetime as dt
import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from difflib import get_close_matches
from enum import StrEnum
from typing import Final, NamedTuple, TypeAlias, cast

from holdfast.core.attributes import LARGEST_INTEGER, LONGEST_NAME, NAME, SMALLEST_INTEGER, microseconds_of
from holdfast.core.lifecycle import InstanceState
from holdfast.errors import InvalidFilter

MOST_CHARACTERS: Final = 100_000
MOST_TESTS: Final = 20
MOST_DEPTH: Final = 8
MOST_VALUES: Final = 100
LONGEST_DAYS: Final = 1_000_000
"""Of a duration."""
SHOWN: Final = 40
"""Characters of the filter in a message."""
ATTRIBUTE_PREFIX: Final = "a."


class Kind(StrEnum):
    """What a field holds, and so which values and operators it takes. The value is how messages name it."""

    TEXT = "a text in quotes"
    STATE = "a state such as FAILED"
    NUMBER = "an integer"
    TIME = "a time such as now - 1h"
    DURATION = "a duration such as 1h30m"
    NAMES = "the name of an event in quotes"
    ATTRIBUTE = "a text, a number, a time, true or false"


FIELDS: Final = {
    "id": Kind.TEXT,
    "workflow": Kind.TEXT,
    "version": Kind.TEXT,
    "state": Kind.STATE,
    "created": Kind.TIME,
    "closed": Kind.TIME,
    "duration": Kind.DURATION,
    "parent": Kind.TEXT,
    "root": Kind.TEXT,
    "error": Kind.TEXT,
    "blocked": Kind.TEXT,
    "waits": Kind.NAMES,
    "execution": Kind.NUMBER,
}


@dataclass(frozen=True, slots=True)
class Field:
    """A field of an instance, or with `is_attribute` an attribute of that name."""

    name: str
    is_attribute: bool = False

    @property
    def kind(self) -> Kind:
        return Kind.ATTRIBUTE if self.is_attribute else FIELDS[self.name]

    def __str__(self) -> str:
        return f"{ATTRIBUTE_PREFIX}{self.name}" if self.is_attribute else self.name


CREATED: Final = Field("created")
CLOSED: Final = Field("closed")


class Operator(StrEnum):
    """Compares a field with one value."""

    EQUAL = "="
    NOT_EQUAL = "!="
    BELOW = "<"
    AT_MOST = "<="
    ABOVE = ">"
    AT_LEAST = ">="


@dataclass(frozen=True, slots=True)
class Instant:
    """A time, in microseconds since 1970."""

    microseconds: int

    def __str__(self) -> str:
        moment = dt.datetime(1970, 1, 1, tzinfo=dt.UTC) + dt.timedelta(microseconds=self.microseconds)
        return moment.isoformat().replace("+00:00", "Z")


@dataclass(frozen=True, slots=True)
class RelativeInstant:
    """``now``, ``today`` or ``yesterday``, and an offset in microseconds. Days begin at midnight in UTC."""

    base: str
    offset: int = 0

    def __str__(self) -> str:
        sign = "-" if self.offset < 0 else "+"
        return f"{self.base} {sign} {Length(abs(self.offset))}" if self.offset else self.base

    def at(self, now_ms: int) -> Instant:
        now = now_ms * 1_000
        midnight = now - now % DAY
        return Instant({"now": now, "today": midnight, "yesterday": midnight - DAY}[self.base] + self.offset)


@dataclass(frozen=True, slots=True)
class Length:
    """A duration in microseconds."""

    microseconds: int

    def __str__(self) -> str:
        whole, rest = divmod(self.microseconds, UNITS["ms"])
        return f"{whole}.{rest:03d}ms" if rest else f"{whole}ms"


Value: TypeAlias = str | int | float | bool | Instant | RelativeInstant | Length


@dataclass(frozen=True, slots=True)
class Comparison:
    """``field op value``."""

    field: Field
    operator: Operator
    value: Value


@dataclass(frozen=True, slots=True)
class In:
    """``field in (value, ...)``."""

    field: Field
    values: tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class Between:
    """``field between low and high``, both included."""

    field: Field
    low: Value
    high: Value


@dataclass(frozen=True, slots=True)
class IsNull:
    """``field is null``: the instance has no such value. Negated: ``field is not null``."""

    field: Field
    is_negated: bool = False


@dataclass(frozen=True, slots=True)
class StartsWith:
    """``field starts with text``."""

    field: Field
    prefix: str


@dataclass(frozen=True, slots=True)
class Not:
    part: "Filter"


@dataclass(frozen=True, slots=True)
class And:
    parts: tuple["Filter", ...]


@dataclass(frozen=True, slots=True)
class Or:
    parts: tuple["Filter", ...]


Test: TypeAlias = Comparison | In | Between | IsNull | StartsWith
Filter: TypeAlias = Test | Not | And | Or


# ---------------------------------------------------------------- words

UNITS: Final = {
    "ms": 1_000,
    "s": 1_000_000,
    "m": 60_000_000,
    "h": 3_600_000_000,
    "d": 86_400_000_000,
    "w": 7 * 86_400_000_000,
}
"""Microseconds."""
DAY: Final = UNITS["d"]
BASES: Final = ("now", "today", "yesterday")
KEYWORDS: Final = frozenset(
    {"and", "or", "not", "in", "between", "is", "null", "starts", "with", "true", "false", *BASES}
)

_SPACE: Final = re.compile(r"\s*")
_TOKEN: Final = re.compile(
    r"""(?P<text>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')
    |(?P<time>\d{4}-\d\d-\d\d(?:[Tt][0-9:.,]*(?:[Zz]|[+-]\d\d:?\d\d)?)?)
    |(?P<duration>(?:\d+(?:\.\d+)?(?:ms|[smhdw]))+(?![A-Za-z0-9_.]))
    |(?P<number>[+-]?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?(?![A-Za-z0-9_.]))
    |(?P<word>[A-Za-z_][A-Za-z0-9_.-]*)
    |(?P<sign><=|>=|!=|<>|==|[=<>(),+-])""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPED: Final = re.compile(r"\\(.)", re.DOTALL)
_PART: Final = re.compile(r"(\d+(?:\.\d+)?)(ms|[smhdw])")
_END: Final = "end"


class FilterWord(NamedTuple):
    """A word of a filter. `column` counts from 1."""

    kind: str
    text: str
    column: int

    def is_word(self, word: str) -> bool:
        return self.kind == "word" and self.text.lower() == word

    @property
    def shown(self) -> str:
        return "the end of the filter" if self.kind == _END else repr(_short(self.text))


def _short(text: str) -> str:
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}..."


def _error(message: str, column: int) -> InvalidFilter:
    return InvalidFilter(f"column {column}: {message}", column)


def _tokens(text: str) -> Iterator[FilterWord]:
    place = _SPACE.match(text).end()  # type: ignore[union-attr]  # it matches the empty text, too
    while place < len(text):
        found = _TOKEN.match(text, place)
        if found is None:
            raise _error(_what_is_wrong(text, place), place + 1)
        yield FilterWord(cast("str", found.lastgroup), found[0], place + 1)
        place = _SPACE.match(text, found.end()).end()  # type: ignore[union-attr]
    yield FilterWord(_END, "", len(text) + 1)


def _what_is_wrong(text: str, place: int) -> str:
    if text[place] in "\"'":
        return f"a text begins here and does not end with {text[place]}"
    return f"{_short(text[place : place + SHOWN].split(maxsplit=1)[0])!r} is not a word of the filter language"


# ---------------------------------------------------------------- parser


def parse(text: object) -> Filter:
    """The tree of a filter."""
    if not isinstance(text, str):
        raise InvalidFilter(f"a filter is a string, not {type(text).__name__}")
    if len(text) > MOST_CHARACTERS:
        raise InvalidFilter(f"a filter has at most {MOST_CHARACTERS:,} characters, not {len(text):,}")
    _check_characters(text)
    parser = _Parser(list(_tokens(text)))
    return parser.whole()


def _check_characters(text: str) -> None:
    for column, character in enumerate(text, 1):
        if character == "\0" or "\ud800" <= character <= "\udfff":
            raise _error(f"the character {character!a} is not allowed, because no stored text has it", column)


class _Parser:
    """Reads the tokens of one filter, from left to right."""

    def __init__(self, tokens: list[FilterWord]) -> None:
        self._tokens = tokens
        self._at = 0
        self._tests = 0

    @property
    def _next(self) -> FilterWord:
        return self._tokens[self._at]

    def _take(self) -> FilterWord:
        token = self._tokens[self._at]
        self._at += token.kind != _END
        return token

    def _takes_word(self, word: str) -> bool:
        if self._next.is_word(word):
            self._at += 1
            return True
        return False

    def _takes_sign(self, sign: str) -> bool:
        if self._next.kind == "sign" and self._next.text == sign:
            self._at += 1
            return True
        return False

    def _expect(self, what: str, *, taken: bool) -> None:
        if not taken:
            raise _error(f"{what} is expected here, not {self._next.shown}", self._next.column)

    def whole(self) -> Filter:
        found = self._or(1)
        if self._next.kind != _END:
            raise _error(f"'and', 'or' or the end is expected here, not {self._next.shown}", self._next.column)
        return found

    def _or(self, depth: int) -> Filter:
        return self._joined("or", Or, lambda: self._and(depth))

    def _and(self, depth: int) -> Filter:
        return self._joined("and", And, lambda: self._not(depth))

    def _joined(self, word: str, make: Callable[[tuple[Filter, ...]], And | Or], part: Callable[[], Filter]) -> Filter:
        parts = [part()]
        while self._takes_word(word):
            parts.append(part())
        return parts[0] if len(parts) == 1 else make(tuple(parts))

    def _not(self, depth: int) -> Filter:
        if depth > MOST_DEPTH:
            raise _error(f"the filter is nested deeper than {MOST_DEPTH} levels", self._next.column)
        if self._takes_word("not"):
            return Not(self._not(depth + 1))
        if self._takes_sign("("):
            found = self._or(depth + 1)
            self._expect("')'", taken=self._takes_sign(")"))
            return found
        return self._test()

    def _test(self) -> Test:
        start = self._next
        self._tests += 1
        if self._tests > MOST_TESTS:
            raise _error(f"a filter has at most {MOST_TESTS} tests", start.column)
        field = self._field()
        sign = self._next
        if sign.kind == "sign" and sign.text in _OPERATORS:
            operator = _OPERATORS[self._take().text]
            self._check_operator(field, sign, is_order=operator not in (Operator.EQUAL, Operator.NOT_EQUAL))
            return Comparison(field, operator, self._value(field))
        if self._takes_word("in"):
            return In(field, self._list(field))
        if self._takes_word("between"):
            self._check_operator(field, sign, is_order=True)
            low = self._value(field)
            self._expect("'and'", taken=self._takes_word("and"))
            end = self._next
            high = self._value(field)
            if class_of(low) != class_of(high):
                raise _error(f"between takes two {class_of(low)}s, not {end.shown}", end.column)
            return Between(field, low, high)
        if self._takes_word("is"):
            is_negated = self._takes_word("not")
            self._expect("'null'", taken=self._takes_word("null"))
            return IsNull(field, is_negated)
        if self._takes_word("starts"):
            self._expect("'with'", taken=self._takes_word("with"))
            return self._starts_with(field, sign)
        raise _error(
            f"=, !=, <, <=, >, >=, in, between, is or starts with follows a field, not {sign.shown}", sign.column
        )

    def _check_operator(self, field: Field, sign: FilterWord, *, is_order: bool) -> None:
        if is_order and field.kind in (Kind.STATE, Kind.NAMES):
            raise _error(f"{field} has no order; it takes =, !=, in and is null, not {sign.shown}", sign.column)

    def _starts_with(self, field: Field, sign: FilterWord) -> StartsWith:
        if field.kind not in (Kind.TEXT, Kind.NAMES, Kind.ATTRIBUTE):
            raise _error(f"only texts start with something, and {field} is {field.kind}", sign.column)
        token = self._take()
        if token.kind != "text":
            raise _error(f"starts with takes a text in quotes, not {token.shown}", token.column)
        return StartsWith(field, _unquoted(token.text))

    def _field(self) -> Field:
        token = self._take()
        if token.kind != "word" or token.text.lower() in KEYWORDS:
            raise _error(f"a field is expected here, not {token.shown}", token.column)
        name = token.text
        if name[: len(ATTRIBUTE_PREFIX)].lower() == ATTRIBUTE_PREFIX:
            attribute = name[len(ATTRIBUTE_PREFIX) :]
            if not NAME.fullmatch(attribute) or len(attribute) > LONGEST_NAME:
                raise _error(f"{_short(name)!r} does not name an attribute", token.column)
            return Field(attribute, is_attribute=True)
        if name.lower() in FIELDS:
            return Field(name.lower())
        raise _error(f"there is no field {_short(name)!r}; {_nearest(name)}", token.column)

    def _list(self, field: Field) -> tuple[Value, ...]:
        self._expect("'('", taken=self._takes_sign("("))
        values = [self._value(field)]
        while self._takes_sign(","):
            if len(values) == MOST_VALUES:
                raise _error(f"a list has at most {MOST_VALUES} values", self._next.column)
            values.append(self._value(field))
        self._expect("',' or ')'", taken=self._takes_sign(")"))
        return tuple(values)

    def _value(self, field: Field) -> Value:
        token = self._take()
        value = self._read(token, field.kind)
        if value is None or not _fits(value, field.kind):
            raise _error(f"{field} takes {field.kind}, not {token.shown}", token.column)
        return value

    def _read(self, token: FilterWord, kind: Kind) -> Value | None:
        match token.kind:
            case "text":
                text = _unquoted(token.text)
                if kind is Kind.TIME:
                    return _instant(text, token.column)
                return _state(text, token.column) if kind is Kind.STATE else text
            case "time":
                return _instant(token.text, token.column)
            case "duration":
                return Length(_length(token))
            case "number":
                return _number(token)
            case "word" if kind is Kind.STATE:
                return _state(token.text, token.column)
            case "word":
                return self._named_value(token)
            case _:
                return None

    def _named_value(self, token: FilterWord) -> Value | None:
        word = token.text.lower()
        if word in ("true", "false"):
            return word == "true"
        if word not in BASES:
            raise _error(
                f"a value is expected here, not {token.shown}; a text is in quotes: {_short(token.text)!r}",
                token.column,
            )
        return RelativeInstant(word, self._offset())

    def _offset(self) -> int:
        """What follows ``now``: a sign and a duration."""
        for sign in ("-", "+"):
            if self._takes_sign(sign):
                token = self._take()
                if token.kind != "duration":
                    raise _error(f"a duration such as 1h30m is expected here, not {token.shown}", token.column)
                return -_length(token) if sign == "-" else _length(token)
        return 0


_OPERATORS: Final = {operator.value: operator for operator in Operator} | {
    "==": Operator.EQUAL,
    "<>": Operator.NOT_EQUAL,
}
_ACCEPTED: Final[dict[Kind, tuple[type, ...]]] = {
    Kind.TEXT: (str,),
    Kind.STATE: (str,),
    Kind.NAMES: (str,),
    Kind.NUMBER: (int,),
    Kind.TIME: (Instant, RelativeInstant),
    Kind.DURATION: (Length,),
    Kind.ATTRIBUTE: (str, int, float, bool, Instant, RelativeInstant),
}


def _fits(value: Value, kind: Kind) -> bool:
    return isinstance(value, _ACCEPTED[kind]) and (kind is Kind.ATTRIBUTE or not isinstance(value, bool))


def class_of(value: Value) -> str:
    """What a value is compared with: values of other classes are neither equal nor ordered (F3)."""
    match value:
        case str():
            return "text"
        case bool():
            return "bool"
        case int() | float():
            return "number"
        case Instant() | RelativeInstant():
            return "time"
        case Length():
            return "duration"


def _unquoted(text: str) -> str:
    return _ESCAPED.sub(r"\1", text[1:-1])


def _nearest(name: str) -> str:
    near = get_close_matches(name.lower(), FIELDS, n=1)
    if near:
        return f"did you mean {near[0]}?"
    attribute = (
        f"; an attribute is written {ATTRIBUTE_PREFIX}{name}" if NAME.fullmatch(name) and len(name) <= SHOWN else ""
    )
    return f"the fields are {', '.join(FIELDS)}{attribute}"


def _state(text: str, column: int) -> str:
    word = text.upper()
    if word in InstanceState.__members__:
        return InstanceState[word].value
    near = get_close_matches(word, list(InstanceState), n=1)
    advice = f"did you mean {near[0]}?" if near else f"the states are {', '.join(InstanceState)}"
    raise _error(f"{_short(text)!r} is not a state; {advice}", column)


def _instant(text: str, column: int) -> Instant:
    try:
        moment = dt.datetime.fromisoformat(text.upper())
    except ValueError:
        raise _error(f"{_short(text)!r} is not a time such as 2026-11-18T14:00:00Z", column) from None
    if moment.tzinfo is None:
        raise _error(f"the time {_short(text)!r} needs a zone: 2026-11-18T14:00:00Z or +01:00 at its end", column)
    return Instant(microseconds_of(moment))


def _length(token: FilterWord) -> int:
    microseconds = sum(round(float(number) * UNITS[unit]) for number, unit in _PART.findall(token.text[:MOST_DIGITS]))
    if len(token.text) > MOST_DIGITS or microseconds > LONGEST_DAYS * DAY:
        raise _error(f"the duration {_short(token.text)!r} is longer than {LONGEST_DAYS:,} days", token.column)
    return microseconds


MOST_DIGITS: Final = 60
"""Characters of a number or a duration: above this it is out of its range, or has digits that change nothing."""


def _number(token: FilterWord) -> float:
    text = token.text
    if len(text) > MOST_DIGITS:
        raise _error(f"the number {_short(text)!r} has more than {MOST_DIGITS} digits", token.column)
    number = int(text) if text.lstrip("+-").isdigit() else float(text)
    is_allowed = SMALLEST_INTEGER <= number <= LARGEST_INTEGER if isinstance(number, int) else math.isfinite(number)
    if not is_allowed:
        raise _error(
            f"the number {_short(text)!r} is out of range: integers have 64 bits, floats are finite", token.column
        )
    return number


# ---------------------------------------------------------------- trees


def at(found: Filter, now_ms: int) -> Filter:
    """The tree with its relative times replaced by those that they stand for at `now_ms`."""

    def fixed(value: Value) -> Value:
        return value.at(now_ms) if isinstance(value, RelativeInstant) else value

    match found:
        case And() | Or():
            return replace(found, parts=tuple(at(part, now_ms) for part in found.parts))
        case Not():
            return Not(at(found.part, now_ms))
        case Comparison():
            return replace(found, value=fixed(found.value))
        case In():
            return replace(found, values=tuple(map(fixed, found.values)))
        case Between():
            return replace(found, low=fixed(found.low), high=fixed(found.high))
        case IsNull() | StartsWith():
            return found


def conjuncts(found: Filter | None) -> tuple[Filter, ...]:
    """The parts of a filter that all have to be true."""
    if found is None:
        return ()
    if isinstance(found, And):
        return tuple(inner for part in found.parts for inner in conjuncts(part))
    return (found,)


def has_time_range(found: Filter | None) -> bool:
    """Whether a filter limits the time at which its matches were created or closed (F8)."""
    return any(
        isinstance(part, Comparison | Between)
        and part.field in (CREATED, CLOSED)
        and not (isinstance(part, Comparison) and part.operator is Operator.NOT_EQUAL)
        for part in conjuncts(found)
    )


def canonical(found: Filter) -> str:
    """The text of a tree. `parse` makes the same tree of it."""
    match found:
        case And() | Or():
            word = " and " if isinstance(found, And) else " or "
            return word.join(
                f"({canonical(part)})" if isinstance(part, And | Or) else canonical(part) for part in found.parts
            )
        case Not():
            inner = canonical(found.part)
            return f"not ({inner})" if isinstance(found.part, And | Or) else f"not {inner}"
        case Comparison():
            return f"{found.field} {found.operator} {_written(found.value)}"
        case In():
            return f"{found.field} in ({', '.join(map(_written, found.values))})"
        case Between():
            return f"{found.field} between {_written(found.low)} and {_written(found.high)}"
        case IsNull():
            return f"{found.field} is {'not ' if found.is_negated else ''}null"
        case StartsWith():
            return f"{found.field} starts with {quoted(found.prefix)}"


def quoted(text: str) -> str:
    """A text as a filter writes it."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _written(value: Value) -> str:
    if isinstance(value, str):
        return quoted(value)
    return str(value).lower() if isinstance(value, bool) else str(value)
