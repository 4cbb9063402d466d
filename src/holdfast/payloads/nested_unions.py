"""Types that contain a union whose members JSON does not distinguish, such as ``list[A | B]``.

msgspec refuses such a type as a whole. `part_of` splits it into parts down to the union, whose values are stored like
those of a union that is itself a parameter or a result: ``{"$type": "A", "value": {...}}``. A part that msgspec accepts
is read and written by msgspec, so only the values of these unions differ from the JSON of msgspec.

A dataclass is made as msgspec makes it: without ``__init__``, and with ``__post_init__``.
"""

import dataclasses
from collections.abc import Callable, Mapping, MutableMapping, MutableSequence, Sequence
from functools import cached_property
from types import NoneType, UnionType
from typing import Any, Final, Protocol, Union, cast, get_args, get_origin, get_type_hints

import msgspec

from holdfast.errors import PayloadError
from holdfast.payloads.diagnosis import ROOT, ValuePath, find_endless, name_of, reason_of, step_of
from holdfast.payloads.limits import is_within_bounds

Choices = dict[tuple[int, bytes], list[str]]
"""For the id of a union and a value without `$type`: the names of the members that can be read from the value."""


class PayloadType(Protocol):
    """One annotation, ready for use. Hot paths keep it; others use `encode` and `decode`."""

    def encode(self, value: Any, what: str = "value", place: ValuePath = ROOT) -> bytes:
        """JSON that decodes to a value equal to `value`.

        Messages name it `what`; `place` is the place of `value` in it.
        """
        ...

    def decode(self, data: bytes, what: str = "payload", path: str = "$", choices: Choices | None = None) -> Any:
        """The value, of the annotated type; JSON of another type is a `PayloadError` with field and path."""
        ...

    @property
    def read(self) -> Callable[[bytes | msgspec.Raw], Any]:
        """As `decode`, but faster, and a mismatch raises any exception."""
        ...


TypeOf = Callable[[Any], PayloadType]
_SEQUENCES: Final = (list, tuple)
_SETS: Final = (set, frozenset)
_MADE_OF_ITEMS: Final[dict[Any, tuple[type, tuple[type, ...]]]] = {
    list: (list, _SEQUENCES),
    Sequence: (list, _SEQUENCES),
    MutableSequence: (list, _SEQUENCES),
    tuple: (tuple, _SEQUENCES),
    set: (set, _SETS),
    frozenset: (frozenset, _SETS),
}
"""The type that a generic type is read as, and the types of values that it accepts."""
_MAPS: Final = (dict, Mapping, MutableMapping)
_NULL: Final = b"null"

_encode_json: Final = msgspec.json.Encoder().encode


def part_of(annotation: Any, type_of: TypeOf) -> "Part | None":
    """The parts of a type that msgspec refuses because of a union inside; None if it is not supported.

    `DataclassPart.fields` reads the fields of a dataclass on first use, because they may name the dataclass itself.
    """
    origin, args = get_origin(annotation), get_args(annotation)
    if origin in (Union, UnionType):
        others = [member for member in args if member is not NoneType]
        return _OrNone(type_of(others[0])) if len(others) == 1 else None
    if origin is tuple and args[-1] is not ...:
        return _Tuple(type_of, args)
    if origin in _MADE_OF_ITEMS:
        return _Items(*_MADE_OF_ITEMS[origin], type_of(args[0]))
    if origin in _MAPS and args[1] not in (None, NoneType):  # with None as its value, msgspec refuses it for its keys
        return _Map(type_of, *args)
    if isinstance(annotation, type) and dataclasses.is_dataclass(annotation):
        return DataclassPart(type_of, annotation)
    return None


class Part:
    """A `PayloadType` that is made of others."""

    def encode(self, value: Any, what: str = "value", place: ValuePath = ROOT) -> bytes:
        """See `PayloadType`."""
        if place.around:
            return self._encode(value, what, place)
        try:
            return self._encode(value, what, place)
        except RecursionError as error:  # a PayloadError would make each union try its other members
            raise PayloadError(f"{what} cannot be stored as JSON: {error}") from error

    def _encode(self, value: Any, what: str, place: ValuePath) -> bytes:
        if problem := find_endless(value, place):
            raise RecursionError(str(problem))
        data = _encode_json(self.split(value, what, place))
        if not is_within_bounds(data):
            raise PayloadError(f"{what} cannot be stored as JSON: {name_of(value)} is nested too deep")
        return data

    def split(self, value: Any, what: str, place: ValuePath) -> Any:
        """`value` as JSON writes it, with the data of its parts."""
        raise NotImplementedError

    def decode(self, data: bytes, what: str = "payload", path: str = "$", choices: Choices | None = None) -> Any:
        """See `PayloadType`."""
        try:
            return self.join(data, what, path, choices)
        except PayloadError:
            raise
        except Exception as error:  # user code runs in here: __post_init__, __hash__, default_factory
            raise PayloadError(f"{what} cannot be read: {reason_of(error, data, path)}") from error

    def join(self, data: bytes, what: str, path: str, choices: Choices | None) -> Any:
        """The value that `data` holds. It may raise anything."""
        raise NotImplementedError

    @property
    def read(self) -> Callable[[bytes | msgspec.Raw], Any]:
        """See `PayloadType`."""
        return lambda data: self.decode(bytes(data))


class _OrNone(Part):
    """One type, or None, which needs no name."""

    def __init__(self, other: PayloadType) -> None:
        self._other = other

    def encode(self, value: Any, what: str = "value", place: ValuePath = ROOT) -> bytes:
        """See `PayloadType`."""
        return _NULL if value is None else self._other.encode(value, what, place)

    def join(self, data: bytes, what: str, path: str, choices: Choices | None) -> Any:
        """See `Part`."""
        return None if data.strip() == _NULL else self._other.decode(data, what, path, choices)


class _Items(Part):
    """Any number of one type."""

    def __init__(self, made: type, taken: tuple[type, ...], item: PayloadType) -> None:
        self._made = made
        self._taken = taken
        self._item = item

    def split(self, value: Any, what: str, place: ValuePath) -> Any:
        """See `Part`."""
        _require(type(value) in self._taken, self._made.__name__, value, what, place)
        encode = self._item.encode
        return [msgspec.Raw(encode(each, what, place.item(value, index))) for index, each in enumerate(value)]

    def join(self, data: bytes, what: str, path: str, choices: Choices | None) -> Any:
        """See `Part`."""
        items = enumerate(_read(data, list[msgspec.Raw]))
        decode = self._item.decode
        return self._made([decode(bytes(each), what, f"{path}[{index}]", choices) for index, each in items])


class _Tuple(Part):
    """A fixed number of types."""

    def __init__(self, type_of: TypeOf, items: tuple[Any, ...]) -> None:
        self._items = [type_of(each) for each in items]
        self._raw = tuple[(msgspec.Raw,) * len(items)]  # type: ignore[misc]  # as long as the annotation

    def split(self, value: Any, what: str, place: ValuePath) -> Any:
        """See `Part`."""
        fits = type(value) in _SEQUENCES and len(value) == len(self._items)
        _require(fits, f"a tuple of length {len(self._items)}", value, what, place)
        pairs = enumerate(zip(self._items, value, strict=True))
        return [msgspec.Raw(item.encode(each, what, place.item(value, index))) for index, (item, each) in pairs]

    def join(self, data: bytes, what: str, path: str, choices: Choices | None) -> Any:
        """See `Part`."""
        pairs = enumerate(zip(self._items, _read(data, self._raw), strict=True))
        return tuple([item.decode(bytes(each), what, f"{path}[{index}]", choices) for index, (item, each) in pairs])


class _Map(Part):
    """A dict. msgspec reads and writes its keys."""

    def __init__(self, type_of: TypeOf, key: Any, value: Any) -> None:
        self._keys = type_of(dict[key, None])
        self._value = type_of(value)
        self._raw = dict[key, msgspec.Raw]

    def split(self, value: Any, what: str, place: ValuePath) -> Any:
        """See `Part`."""
        _require(type(value) is dict, "dict", value, what, place)
        self._keys.encode(dict.fromkeys(value), what, place)
        encode = self._value.encode
        return {key: msgspec.Raw(encode(each, what, place.member(value, key))) for key, each in value.items()}

    def join(self, data: bytes, what: str, path: str, choices: Choices | None) -> Any:
        """See `Part`."""
        items = _read(data, self._raw).items()
        decode = self._value.decode
        return {key: decode(bytes(each), what, path + step_of(key), choices) for key, each in items}


class DataclassPart(Part):
    """A dataclass, by its fields."""

    def __init__(self, type_of: TypeOf, cls: type[Any]) -> None:
        self._type_of = type_of
        self._cls = cast("Any", cls)

    @cached_property
    def fields(self) -> list[tuple[dataclasses.Field[Any], PayloadType]]:
        """The fields with their types. A field that cannot be stored is an `AnnotationError`."""
        hints = get_type_hints(self._cls, include_extras=True)
        return [(each, self._type_of(hints[each.name])) for each in dataclasses.fields(self._cls)]

    def split(self, value: Any, what: str, place: ValuePath) -> Any:
        """See `Part`."""
        _require(type(value) is self._cls, self._cls.__name__, value, what, place)
        return {
            each.name: msgspec.Raw(
                kind.encode(getattr(value, each.name, dataclasses.MISSING), what, place.member(value, each.name))
            )
            for each, kind in self.fields
        }

    def _encode(self, value: Any, what: str, place: ValuePath) -> bytes:
        data = super()._encode(value, what, place)
        if hasattr(self._cls, "__post_init__"):
            self.decode(data, what, place.path)  # a value that it refuses must not be stored
        return data

    def join(self, data: bytes, what: str, path: str, choices: Choices | None) -> Any:
        """See `Part`."""
        stored = _read(data, dict[str, msgspec.Raw])
        made = self._cls.__new__(self._cls)
        for each, kind in self.fields:
            if each.name in stored:
                value = kind.decode(bytes(stored[each.name]), what, f"{path}.{each.name}", choices)
            elif each.default is not dataclasses.MISSING:
                value = each.default
            elif each.default_factory is not dataclasses.MISSING:
                value = each.default_factory()
            else:
                raise msgspec.ValidationError(f"Object missing required field `{each.name}`")
            object.__setattr__(made, each.name, value)
        if hasattr(made, "__post_init__"):
            made.__post_init__()
        return made


def _require(fits: bool, expected: str, value: Any, what: str, place: ValuePath) -> None:
    if not fits:
        raise PayloadError(
            f"{what} cannot be stored as JSON: at `{place.path}`: expected {expected}, found {name_of(value)}; "
            "change the value or the annotation"
        )


def _read(data: bytes, annotation: Any) -> Any:
    return msgspec.json.decode(data, type=annotation)
