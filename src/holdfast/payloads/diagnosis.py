"""Finds where and why a value does not fit its annotated type. It runs only when encoding is in doubt.

The walk follows the value and the type side by side. It is bounded: a value nested deeper than `MAX_DEPTH`,
which every cyclic one is, ends it. Messages name the path, the expected type, the found type and the remedy;
they never contain values, which may be secrets.

A value fits if a reader of the annotation would accept it: a tuple for a list and the other way round, a
frozenset for a set, an integer for a float that can hold it exactly. It is decoded as the annotated type.
"""

import datetime as dt
import decimal
import math
import re
import uuid
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, NamedTuple, TypeAlias, TypeGuard

import msgspec
from msgspec import inspect

from holdfast.errors import PayloadError
from holdfast.payloads.limits import MAX_DEPTH, MAX_INTEGER_DIGITS, shorten
from holdfast.payloads.pydantic_models import is_model_type

_LONGEST_KEY_SHOWN: Final = 60
_TOO_LARGE_INTEGER: Final = 10**MAX_INTEGER_DIGITS
_NOTHING: Final = object()
_PATH_AT_THE_END: Final = re.compile(r"(?<= - at `)\$(?=[^`]*`$)|(?<= - at `key` in `)\$(?=[^`]*`$)")
_NO_KEYS: Final = (bool, type(None), tuple, frozenset)


class Mismatch(NamedTuple):
    """A value that does not fit; `str()` is its message."""

    path: str
    expected: str
    found: str
    advice: str

    def __str__(self) -> str:
        return f"at `{self.path}`: expected {self.expected}, found {self.found}; {self.advice}"


Tried: TypeAlias = dict[tuple[int, int, str], tuple[object, bytes | PayloadError]]
"""For the id of a union, the id of a value and its path: the value, so that its id stays taken, and its JSON."""


class ValuePath(NamedTuple):
    """A place in a value: its path, and the identities of the containers around it.

    `tried` has the results of unions inside of the outermost union.
    """

    path: str = "$"
    around: tuple[int, ...] = ()
    tried: Tried | None = None

    def item(self, container: object, index: int) -> "ValuePath":
        return ValuePath(f"{self.path}[{index}]", (*self.around, id(container)), self.tried)

    def member(self, container: object, key: object) -> "ValuePath":
        return ValuePath(self.path + step_of(key), (*self.around, id(container)), self.tried)


ROOT: Final = ValuePath()


def step_of(key: object) -> str:
    """The step of a path to what a dict or an object has under `key`."""
    if isinstance(key, str):
        text = shorten(key, _LONGEST_KEY_SHOWN)
        return f".{text}" if text.isidentifier() else f"[{text!r}]"
    return f"[<{type(key).__qualname__}>]"


_Check = Callable[[Any, Any, ValuePath], Mismatch | None]

_ADVICE_FIT: Final = "change the value or the annotation"
_ADVICE_KEY: Final = "annotate the dict with its key type"
_ADVICE_AWAIT: Final = "is an `await` missing?"
_ADVICE_PLAIN: Final = "without an annotation only JSON types are decoded unchanged: annotate it, or convert it"


def find_problem(value: object, node: inspect.Type, place: ValuePath = ROOT) -> Mismatch | None:
    """The first mismatch of `value` and the type that `node` describes, or None."""
    if problem := find_endless(value, place):
        return problem
    if check := _CHECKS.get(type(node)):
        return check(value, node, place)
    return None


def find_endless(value: object, place: ValuePath) -> Mismatch | None:
    """The mismatch of a `value` that contains itself, or that is deeper than `MAX_DEPTH`."""
    if id(value) in place.around:
        name = name_of(value)
        return Mismatch(place.path, f"another {name}", f"{name} that contains itself", "break the cycle")
    if len(place.around) > MAX_DEPTH:
        return Mismatch(place.path, f"at most {MAX_DEPTH} levels", "a deeper one", "flatten the value")
    return None


def reason_of(error: Exception, data: bytes | None = None, path: str = "$") -> str:
    """The message of an error of msgspec or of user code for the value at `path`, where msgspec's own paths begin."""
    if data is not None and not data:
        return "it is empty; None is stored as null, and an absent value is not stored at all"
    if isinstance(error, RecursionError):
        return "it is nested too deep"
    if isinstance(error, UnicodeDecodeError):
        return f"it is not valid UTF-8 (byte {error.start})"
    text = str(error) if isinstance(error, ValueError | TypeError) else f"{type(error).__qualname__}: {error}"
    is_invalid = isinstance(error, msgspec.ValidationError)
    if is_invalid and (found := _PATH_AT_THE_END.search(text)):
        return f"{text[: found.start()]}{path}{text[found.end() :]}"
    return f"{text} - at `{path}`" if is_invalid or path != "$" else text


def name_of(value: object) -> str:
    """The name of the type of `value`, as messages show it."""
    return "None" if value is None else type(value).__qualname__


def describe(node: inspect.Type) -> str:
    """The type that `node` stands for, as messages show it."""
    match node:
        case inspect.AnyType():
            return "a JSON type"
        case inspect.UnionType(types=types):
            return " or ".join(describe(member) for member in types)
        case inspect.LiteralType(values=values):
            return "one of " + ", ".join(repr(value) for value in values)
        case inspect.NoneType():
            return "None"
        case _ if cls := getattr(node, "cls", None):
            return _plain_class(cls).__qualname__
        case _:
            name = type(node).__name__.removesuffix("Type")
            return {"VarTuple": "tuple", "ByteArray": "bytearray", "UUID": "UUID"}.get(name, name.lower())


def _mismatch(value: object, node: inspect.Type, place: ValuePath, advice: str = _ADVICE_FIT) -> Mismatch:
    is_awaited = hasattr(type(value), "__await__")
    return Mismatch(place.path, describe(node), name_of(value), _ADVICE_AWAIT if is_awaited else advice)


def _is_dict(value: object) -> TypeGuard[dict[Any, Any]]:
    return isinstance(value, dict)


def _is_sequence(value: object) -> TypeGuard[Sequence[Any]]:
    return isinstance(value, list | tuple)


def _check_any(value: Any, node: Any, place: ValuePath) -> Mismatch | None:
    kind: type[Any] = value.__class__
    if value is None or kind is bool:
        return None
    if check := _CHECKS_OF_PLAIN.get(kind):
        return check(value, node, place)
    if _is_dict(value):
        return _check_plain_dict(value, node, place)
    if _is_sequence(value) and isinstance(value, list):
        return _check_items(value, _ANY, place)
    if isinstance(value, str | int):  # an enum that is a string or a number is decoded as its base
        return None
    return _mismatch(value, node, place, _ADVICE_PLAIN)


def _check_plain_dict(value: dict[Any, Any], _node: Any, place: ValuePath) -> Mismatch | None:
    for key, item in value.items():
        inner = place.member(value, key)
        if not isinstance(key, str):
            can_be_annotated = type(key) not in _NO_KEYS
            advice = f"{_ADVICE_KEY if can_be_annotated else 'use a list of pairs'}, or use str keys"
            return Mismatch(inner.path, "a key of type str", f"a key of type {name_of(key)}", advice)
        if problem := _check_str(key, _STR, inner) or find_problem(item, _ANY, inner):
            return problem
    return None


def _check_int(value: Any, node: Any, place: ValuePath) -> Mismatch | None:
    if isinstance(value, bool) or not isinstance(value, int):
        return _mismatch(value, node, place)
    if abs(value) < _TOO_LARGE_INTEGER:
        return None
    advice = "store it as text in base 16, or as bytes"
    return Mismatch(place.path, f"at most {MAX_INTEGER_DIGITS:,} digits", "an int with more", advice)


def _check_float(value: Any, node: Any, place: ValuePath) -> Mismatch | None:
    if type(value) is float:
        if math.isfinite(value):
            return None
        advice = "JSON has no NaN and no infinity: use None, or a str"
        return Mismatch(place.path, "a finite float", str(value), advice)
    if isinstance(value, bool) or not isinstance(value, int):
        return _mismatch(value, node, place)
    try:
        exact = float(value) == value
    except OverflowError:
        exact = False
    if exact:
        return None
    return Mismatch(place.path, "float", "an int that no float holds exactly", "annotate it as int")


def _check_str(value: Any, node: Any, place: ValuePath) -> Mismatch | None:
    if not isinstance(value, str):
        return _mismatch(value, node, place)
    try:
        value.encode()
    except UnicodeEncodeError:
        advice = "a lone surrogate cannot be stored: decode with errors='replace', or annotate as bytes"
        return Mismatch(place.path, "str", "str with a lone surrogate", advice)
    if "\0" in value:
        advice = "PostgreSQL cannot store NUL in JSON: remove it, or annotate as bytes"
        return Mismatch(place.path, "str", "str with a NUL character", advice)
    return None


def _check_exact(*kinds: type) -> _Check:
    def check(value: Any, node: Any, place: ValuePath) -> Mismatch | None:
        return None if type(value) in kinds else _mismatch(value, node, place)

    return check


def _check_decimal(value: Any, node: Any, place: ValuePath) -> Mismatch | None:
    if not isinstance(value, decimal.Decimal):
        return _mismatch(value, node, place)
    if value.is_finite():
        return None
    return Mismatch(place.path, "a finite Decimal", str(value), "use None, or a str")


def _check_instance(value: Any, node: Any, place: ValuePath) -> Mismatch | None:
    if node.cls is object:
        return _check_any(value, node, place)
    return None if isinstance(value, node.cls) else _mismatch(value, node, place)


def _check_model(value: Any, node: Any, place: ValuePath) -> Mismatch | None:
    if node.cls is object:
        return _check_any(value, _ANY, place)
    if type(value) is not node.cls:
        return _mismatch(value, node, place, "a subclass would be decoded as its base class")
    if not is_model_type(node.cls):
        return None
    try:
        again = node.cls.model_validate_json(value.model_dump_json(by_alias=True, round_trip=True))
    except (ValueError, TypeError) as error:
        return Mismatch(place.path, describe(node), "a model that cannot read its own JSON", type(error).__name__)
    if again == value:
        return None
    return Mismatch(place.path, describe(node), "a model that its own JSON changes", "look for NaN and for aliases")


def _check_literal(value: Any, node: Any, place: ValuePath) -> Mismatch | None:
    fits = any(value == option and type(value) is type(option) for option in node.values)
    return None if fits else _mismatch(value, node, place)


def _check_union(value: Any, node: Any, place: ValuePath) -> Mismatch | None:
    nearest: Mismatch | None = None
    for member in node.types:
        problem = find_problem(value, member, place)
        if problem is None:
            return None
        if nearest is None or len(problem.path) > len(nearest.path):
            nearest = problem
    if nearest is not None and (nearest.path != place.path or nearest.found != name_of(value)):
        return nearest
    return _mismatch(value, node, place)


def _check_items(value: Iterable[Any], item: inspect.Type, place: ValuePath) -> Mismatch | None:
    for index, element in enumerate(value):
        if problem := find_problem(element, item, place.item(value, index)):
            return problem
    return None


def _check_collection(*kinds: type) -> _Check:
    def check(value: Any, node: Any, place: ValuePath) -> Mismatch | None:
        if not issubclass(type(value), kinds):
            return _mismatch(value, node, place)
        return _check_items(value, node.item_type, place)

    return check


def _check_tuple(value: Any, node: Any, place: ValuePath) -> Mismatch | None:
    if not _is_sequence(value):
        return _mismatch(value, node, place)
    if len(value) != len(node.item_types):
        found = f"a {name_of(value)} of length {len(value)}"
        return Mismatch(place.path, f"a tuple of length {len(node.item_types)}", found, _ADVICE_FIT)
    for index, (element, item) in enumerate(zip(value, node.item_types, strict=True)):
        if problem := find_problem(element, item, place.item(value, index)):
            return problem
    return None


def _check_dict(value: Any, node: Any, place: ValuePath) -> Mismatch | None:
    if not _is_dict(value):
        return _mismatch(value, node, place)
    if isinstance(node.key_type, inspect.AnyType):
        return _check_plain_dict(value, node, place)
    for key, item in value.items():
        inner = place.member(value, key)
        if problem := find_problem(key, node.key_type, inner):
            return problem._replace(expected=f"a key: {problem.expected}")
        if problem := find_problem(item, node.value_type, inner):
            return problem
    return _check_keys_differ(value, place) if isinstance(node.key_type, inspect.UnionType) else None


def _check_keys_differ(value: dict[Any, Any], place: ValuePath) -> Mismatch | None:
    """1 and "1" are two keys of a dict and one key of a JSON object."""
    names: set[bytes] = set()
    for key in value:
        name = msgspec.json.encode({key: None})
        if name in names:
            path = place.member(value, key).path
            return Mismatch(
                path,
                "keys that differ in JSON",
                f"a second {shorten(str(key), _LONGEST_KEY_SHOWN)!r}",
                "use keys of one type",
            )
        names.add(name)
    return None


def _check_typed_dict(value: Any, node: Any, place: ValuePath) -> Mismatch | None:
    if not _is_dict(value):
        return _mismatch(value, node, place)
    fields = {field.encode_name: field for field in node.fields}
    for key in value:
        if key not in fields:
            found = f"a key that {describe(node)} does not have"
            return Mismatch(place.member(value, key).path, "no such key", found, _ADVICE_FIT)
    for name, field in fields.items():
        inner = place.member(value, name)
        if name in value:
            problem = find_problem(value[name], field.type, inner)
        else:
            missing = Mismatch(inner.path, describe(field.type), "nothing", "set the key")
            problem = missing if field.required else None
        if problem:
            return problem
    return None


def _check_record(value: Any, node: Any, place: ValuePath) -> Mismatch | None:
    cls = _plain_class(node.cls)
    if type(value) is not cls:
        advice = "a subclass would be decoded as its base class" if isinstance(value, cls) else _ADVICE_FIT
        return _mismatch(value, node, place, advice)
    for field in node.fields:
        inner = place.member(value, field.name)
        item = getattr(value, field.name, _NOTHING)
        if item is _NOTHING:
            return Mismatch(inner.path, describe(field.type), "nothing", "set the field")
        if item is not msgspec.UNSET and (problem := find_problem(item, field.type, inner)):
            return problem
    return None


def _plain_class(cls: Any) -> type[Any]:
    """``Box`` of ``Box[int]``: instances do not know their parameters."""
    origin: type[Any] = getattr(cls, "__origin__", cls)
    return origin


_ANY: Final = inspect.AnyType()
_STR: Final = inspect.StrType()

_CHECKS_OF_PLAIN: Final[dict[type, _Check]] = {int: _check_int, float: _check_float, str: _check_str}

_CHECKS: Final[dict[type, _Check]] = {
    inspect.AnyType: _check_any,
    inspect.NoneType: _check_exact(type(None)),
    inspect.BoolType: _check_exact(bool),
    inspect.IntType: _check_int,
    inspect.FloatType: _check_float,
    inspect.StrType: _check_str,
    inspect.BytesType: _check_exact(bytes),
    inspect.ByteArrayType: _check_exact(bytearray),
    inspect.DateTimeType: _check_exact(dt.datetime),
    inspect.DateType: _check_exact(dt.date),
    inspect.TimeType: _check_exact(dt.time),
    inspect.TimeDeltaType: _check_exact(dt.timedelta),
    inspect.UUIDType: _check_exact(uuid.UUID),
    inspect.DecimalType: _check_decimal,
    inspect.EnumType: _check_instance,
    inspect.CustomType: _check_model,
    inspect.LiteralType: _check_literal,
    inspect.UnionType: _check_union,
    inspect.ListType: _check_collection(list, tuple),
    inspect.VarTupleType: _check_collection(list, tuple),
    inspect.SetType: _check_collection(set, frozenset),
    inspect.FrozenSetType: _check_collection(set, frozenset),
    inspect.TupleType: _check_tuple,
    inspect.DictType: _check_dict,
    inspect.TypedDictType: _check_typed_dict,
    inspect.NamedTupleType: _check_record,
    inspect.DataclassType: _check_record,
    inspect.StructType: _check_record,
}
