"""Types that contain a union which JSON cannot tell apart: ``list[A | B]``, or a dataclass with a field ``A | B``.

msgspec refuses such a type as a whole. `part_of` splits it into parts down to the union, whose values are stored as
those of a union that is itself a parameter or a result: ``{"$type": "A", "value": {...}}``. A part that msgspec accepts
is read and written by msgspec. So only the values of these unions differ from what msgspec would write.

A dataclass is made as msgspec makes it: without ``__init__``, and with ``__post_init__``.
"""

import dataclasses
from collections.abc import Callable, Mapping, MutableMapping, MutableSequence, Sequence
from functools import cached_property
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Any, Final, TypeVar, Union, cast, get_args, get_origin, get_type_hints

import msgspec

from holdfast.errors import PayloadError
from holdfast.payloads.diagnosis import name_of
from holdfast.payloads.limits import is_within_bounds

if TYPE_CHECKING:
    from holdfast.payloads.encoding import PayloadType


T = TypeVar("T")
TypeOf = Callable[[Any], "PayloadType"]
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
"""What a generic type is read as, and the types of the values that it takes."""
_MAPS: Final = (dict, Mapping, MutableMapping)
_NULL: Final = b"null"

_encode_json: Final = msgspec.json.Encoder().encode


def part_of(annotation: Any, type_of: TypeOf) -> "Part | None":
    """How to read and write a type that msgspec refuses for a union inside; None if nothing is known about it.

    The fields of a dataclass are not looked at before `Record.fields`, because they may name the dataclass itself.
    """
    origin, args = get_origin(annotation), get_args(annotation)
    if origin in (Union, UnionType):
        others = [member for member in args if member is not NoneType]
        return _OrNone(type_of(others[0])) if len(others) == 1 else None
    if origin is tuple and args[-1] is not ...:
        return _Tuple(type_of, args)
    if origin in _MADE_OF_ITEMS:
        return _Items(*_MADE_OF_ITEMS[origin], type_of(args[0]))
    if origin in _MAPS:
        return _Map(type_of, *args)
    if isinstance(annotation, type) and dataclasses.is_dataclass(annotation):
        return Record(type_of, annotation)
    return None


class Part:
    """A `PayloadType` that is made of others."""

    def encode(self, value: Any, what: str = "value") -> bytes:
        """See `PayloadType`."""
        data = _encode_json(self.split(value, what))
        if not is_within_bounds(data):
            raise PayloadError(f"{what} cannot be stored as JSON: {name_of(value)} is nested too deep")
        return data

    def split(self, value: Any, what: str) -> Any:
        """`value` as JSON writes it, with the data of its parts."""
        raise NotImplementedError

    def decode(self, data: bytes, what: str = "payload") -> Any:
        """See `PayloadType`."""
        raise NotImplementedError

    @property
    def read(self) -> Callable[[bytes | msgspec.Raw], Any]:
        """See `PayloadType`."""
        return lambda data: self.decode(bytes(data))


class _OrNone(Part):
    """One type, or None: no name is needed to tell these apart."""

    def __init__(self, other: "PayloadType") -> None:
        self._other = other

    def encode(self, value: Any, what: str = "value") -> bytes:
        """See `PayloadType`."""
        return _NULL if value is None else self._other.encode(value, what)

    def decode(self, data: bytes, what: str = "payload") -> Any:
        """See `PayloadType`."""
        return None if data.strip() == _NULL else self._other.decode(data, what)


class _Items(Part):
    """Any number of one type."""

    def __init__(self, made: type, taken: tuple[type, ...], item: "PayloadType") -> None:
        self._made = made
        self._taken = taken
        self._item = item

    def split(self, value: Any, what: str) -> Any:
        """See `Part`."""
        _require(type(value) in self._taken, self._made.__name__, value, what)
        return [_encoded(self._item, each, what, f"[{index}]") for index, each in enumerate(value)]

    def decode(self, data: bytes, what: str = "payload") -> Any:
        """See `PayloadType`."""
        items = _read(data, list[msgspec.Raw], what)
        return self._made(_decoded(self._item, each, what, f"[{index}]") for index, each in enumerate(items))


class _Tuple(Part):
    """A fixed number of types."""

    def __init__(self, type_of: TypeOf, items: tuple[Any, ...]) -> None:
        self._items = [type_of(each) for each in items]
        self._raw = tuple[(msgspec.Raw,) * len(items)]  # type: ignore[misc]  # as long as the annotation

    def split(self, value: Any, what: str) -> Any:
        """See `Part`."""
        fits = type(value) in _SEQUENCES and len(value) == len(self._items)
        _require(fits, f"a tuple of length {len(self._items)}", value, what)
        pairs = enumerate(zip(self._items, value, strict=True))
        return [_encoded(item, each, what, f"[{index}]") for index, (item, each) in pairs]

    def decode(self, data: bytes, what: str = "payload") -> Any:
        """See `PayloadType`."""
        pairs = enumerate(zip(self._items, _read(data, self._raw, what), strict=True))
        return tuple(_decoded(item, each, what, f"[{index}]") for index, (item, each) in pairs)


class _Map(Part):
    """A dict. msgspec reads and writes its keys."""

    def __init__(self, type_of: TypeOf, key: Any, value: Any) -> None:
        self._keys = type_of(dict[key, None])
        self._value = type_of(value)
        self._raw = dict[key, msgspec.Raw]

    def split(self, value: Any, what: str) -> Any:
        """See `Part`."""
        _require(type(value) is dict, "dict", value, what)
        self._keys.encode(dict.fromkeys(value), what)
        return {key: _encoded(self._value, each, what, f"[{key!r}]") for key, each in value.items()}

    def decode(self, data: bytes, what: str = "payload") -> Any:
        """See `PayloadType`."""
        items = _read(data, self._raw, what).items()
        return {key: _decoded(self._value, each, what, f"[{key!r}]") for key, each in items}


class Record(Part):
    """A dataclass, by its fields."""

    def __init__(self, type_of: TypeOf, cls: type[Any]) -> None:
        self._type_of = type_of
        self._cls = cast("Any", cls)

    @cached_property
    def fields(self) -> "list[tuple[dataclasses.Field[Any], PayloadType]]":
        """The fields with their types. A field that cannot be stored is an `AnnotationError`."""
        hints = get_type_hints(self._cls, include_extras=True)
        return [(each, self._type_of(hints[each.name])) for each in dataclasses.fields(self._cls)]

    def split(self, value: Any, what: str) -> Any:
        """See `Part`."""
        _require(type(value) is self._cls, self._cls.__name__, value, what)
        return {
            each.name: _encoded(kind, getattr(value, each.name, dataclasses.MISSING), what, f".{each.name}")
            for each, kind in self.fields
        }

    def encode(self, value: Any, what: str = "value") -> bytes:
        """See `PayloadType`."""
        data = super().encode(value, what)
        if hasattr(self._cls, "__post_init__"):
            self.decode(data, what)  # what it refuses must not be stored
        return data

    def decode(self, data: bytes, what: str = "payload") -> Any:
        """See `PayloadType`."""
        stored = _read(data, dict[str, msgspec.Raw], what)
        made = self._cls.__new__(self._cls)
        for each, kind in self.fields:
            if each.name in stored:
                value = _decoded(kind, stored[each.name], what, f".{each.name}")
            elif each.default is not dataclasses.MISSING:
                value = each.default
            elif each.default_factory is not dataclasses.MISSING:
                value = each.default_factory()
            else:
                raise PayloadError(f"{what} cannot be read: Object missing required field `{each.name}` - at `$`")
            object.__setattr__(made, each.name, value)
        try:
            getattr(made, "__post_init__", _nothing)()
        except Exception as error:  # user code
            raise PayloadError(f"{what} cannot be read: {type(error).__qualname__}: {error} - at `$`") from error
        return made


def _nothing() -> None: ...


def _require(fits: bool, expected: str, value: Any, what: str) -> None:
    if not fits:
        raise PayloadError(
            f"{what} cannot be stored as JSON: at `$`: expected {expected}, found {name_of(value)}; "
            "change the value or the annotation"
        )


def _read(data: bytes, annotation: Any, what: str) -> Any:
    try:
        return msgspec.json.decode(data, type=annotation)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        path = "" if " - at `" in str(error) else " - at `$`"
        raise PayloadError(f"{what} cannot be read: {error}{path}") from error


def _encoded(kind: "PayloadType", value: Any, what: str, place: str) -> msgspec.Raw:
    return msgspec.Raw(_at(place, kind.encode, value, what))


def _decoded(kind: "PayloadType", raw: msgspec.Raw, what: str, place: str) -> Any:
    return _at(place, kind.decode, bytes(raw), what)


def _at(place: str, do: Callable[[Any, str], T], value: Any, what: str) -> T:
    """The result of `do`; a refusal names the path from the whole value."""
    try:
        return do(value, what)
    except PayloadError as error:
        raise PayloadError(str(error).replace("`$", f"`${place}", 1)) from cast("Any", error).__cause__
