"""Values to JSON and back, typed by annotations (`encode`, `decode`).

The guarantee of `encode`: what it returns decodes, by the same annotation, to an equal value of the
annotated type. Anything else is refused with a `PayloadError` that names the path, and nothing is stored.

How that is ensured, and what it costs. The obvious check, ``msgspec.convert``, accepts any instance of the
right class without looking at its fields; a walk in Python looks at everything but costs 2 to 10
microseconds for each item. So `encode` decodes what it has just encoded and compares, in C: about half a
microsecond more for a number, two for a small dataclass, and for a list of 1,000 integers 0.06 ms where the
walk takes 1.7 ms. The comparison finds values that JSON loses silently: NaN and infinities (written as
null), tuples, sets, dates and bytes without an annotation, integer keys, subclasses, fields of the wrong
type. Only when it fails does the walk of `holdfast.payloads.diagnosis` run. It finds the path for the
message, or it finds nothing wrong (classes without ``__eq__``, a tuple for a list), and then the value is
accepted.

Not found by comparing, and accepted: a subclass that equals its base, such as a `StrEnum` member where
nothing or `str` is annotated, or an `OrderedDict` for a `dict`. It comes back as the base type.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import is_dataclass
from types import NoneType, UnionType
from typing import Annotated, Any, Final, Union, cast, get_args, get_origin

import msgspec
from msgspec import inspect
from msgspec.structs import astuple

from holdfast.errors import AnnotationError, PayloadError
from holdfast.payloads.diagnosis import ROOT, ValuePath, describe, find_problem, name_of, reason_of
from holdfast.payloads.limits import ESCAPED_NUL, SHORTEST_SUSPECT_BYTES, is_within_bounds
from holdfast.payloads.nested_unions import Choices, DataclassPart, PayloadType, part_of
from holdfast.payloads.pydantic_models import (
    are_constraints_ignored,
    decode_unknown,
    encode_unknown,
    is_model_type,
    with_constraints,
)

CACHED_TYPES_LIMIT: Final = 4_096
"""Annotations come from code, so they are few; a program that creates types in a loop only loses speed."""

UNRESOLVED_HINT: Final = (
    "import the name outside `if TYPE_CHECKING`; a class that is defined inside a function has to move to module "
    "level, or the module must not use `from __future__ import annotations`"
)

_TYPES_HINT: Final = "use a dataclass, a msgspec struct, a pydantic model or a standard type"
_NO_KEYS: Final = (
    inspect.BoolType,
    inspect.NoneType,
    inspect.ByteArrayType,
    inspect.CollectionType,
    inspect.TupleType,
    inspect.DictType,
    inspect.TypedDictType,
    inspect.NamedTupleType,
    inspect.DataclassType,
    inspect.StructType,
)
"""Types that cannot be the key of a JSON object."""

_encode_json: Final = msgspec.json.Encoder(enc_hook=encode_unknown).encode


def reads_bytes(kind: PayloadType) -> bool:
    """Whether `kind` reads a JSON string as bytes."""
    return isinstance(kind, _Typed) and kind.reads_bytes


def encode(value: Any, annotation: Any = Any, *, what: str = "value") -> bytes:
    """`value` as JSON of the type `annotation`, which decodes to an equal value."""
    return payload_type(annotation).encode(value, what)


def encode_untyped(value: object, *, what: str) -> bytes:
    """`value` as JSON of its own type, where no annotation is given: a dataclass can be decoded as one again."""
    kind = Any if value is None or isinstance(value, dict | list) else type(value)
    return encode(value, kind, what=what)


def decode(data: bytes, annotation: Any = Any, *, what: str = "payload") -> Any:
    """The value of type `annotation` that `data` holds."""
    return payload_type(annotation).decode(data, what)


_cache: dict[Any, PayloadType] = {}


def payload_type(annotation: Any) -> PayloadType:
    """The payload type of `annotation`, built once; an `AnnotationError` if its values cannot be stored."""
    try:
        return _cache[annotation]
    except KeyError:
        built = _build(annotation)
    except TypeError:  # metadata of Annotated that cannot be hashed
        return _build(annotation)
    if len(_cache) >= CACHED_TYPES_LIMIT:
        _cache.clear()
    _cache[annotation] = built
    return built


class _Typed:
    """A type that msgspec reads and writes, with pydantic models through hooks."""

    __slots__ = ("_decode_json", "_node", "_unconstrained", "plain")

    def __init__(
        self,
        decode_json: Callable[[bytes | msgspec.Raw], Any],
        node: inspect.Type,
        unconstrained: "_Typed | None" = None,
    ) -> None:
        self._decode_json = decode_json
        self._node = node
        self._unconstrained = unconstrained
        """The same type without the constraints of pydantic, for executions that began before these were checked."""
        self.plain = str if node == inspect.StrType() else int if node == inspect.IntType() else None
        """The type itself, if its values always survive JSON unchanged."""

    @property
    def read(self) -> Callable[[bytes | msgspec.Raw], Any]:
        """See `PayloadType`."""
        return self._decode_json

    @property
    def reads_bytes(self) -> bool:
        """Whether a JSON string is read as bytes. msgspec refuses unions with two types that are strings in JSON."""
        node = self._node.type if isinstance(self._node, inspect.Metadata) else self._node
        members = node.types if isinstance(node, inspect.UnionType) else (node,)
        return any(isinstance(each, inspect.BytesType | inspect.ByteArrayType) for each in members)

    def encode(self, value: Any, what: str = "value", place: ValuePath = ROOT) -> bytes:
        """See `PayloadType`."""
        try:
            data = _encode_json(value)
            if (type(value) is self.plain or self._decode_json(data) == value) and (
                (len(data) < SHORTEST_SUSPECT_BYTES and data.find(ESCAPED_NUL) < 0) or is_within_bounds(data)
            ):
                return data
        except Exception:  # noqa: BLE001  the walk finds the reason; user code may raise anything
            return self._encode_in_doubt(value, what, place)
        return self._encode_in_doubt(value, what, place)

    def _encode_in_doubt(self, value: Any, what: str, place: ValuePath) -> bytes:
        if self._unconstrained is not None and are_constraints_ignored():
            return self._unconstrained.encode(value, what, place)
        if problem := find_problem(value, self._node, place):
            raise PayloadError(f"{what} cannot be stored as JSON: {problem}")
        try:
            data = _encode_json(value)
            self._decode_json(data)
        except Exception as error:
            reason = reason_of(error, path=place.path)
            raise PayloadError(f"{what} cannot be stored as JSON: {name_of(value)}: {reason}") from error
        if not is_within_bounds(data):
            raise PayloadError(f"{what} cannot be stored as JSON: {name_of(value)} is nested too deep or has a NUL")
        return data

    def decode(self, data: bytes, what: str = "payload", path: str = "$", choices: Choices | None = None) -> Any:
        """See `PayloadType`."""
        try:
            return self._decode_json(data)
        except Exception as error:  # user code runs in here too: __post_init__, validators
            if self._unconstrained is not None and are_constraints_ignored():
                return self._unconstrained.decode(data, what, path, choices)
            raise PayloadError(f"{what} cannot be read: {reason_of(error, data, path)}") from error


class _Tagged:
    """A union whose members JSON does not distinguish: the name of the type is stored with the value.

    ``{"$type": "Approved", "value": {...}}``. Reading also takes the bare value, for senders by hand, if exactly one
    member can be read from it. Each member is tried, and each of them tries the unions inside of the value. Two tables
    keep this from being exponential in the depth of a recursive type: `Choices` for reading, `ValuePath.tried` for
    writing.
    """

    __slots__ = ("_members", "_text")

    def __init__(self, annotation: Any) -> None:
        self._text = text_of(annotation)
        self._members: dict[str, tuple[Any, PayloadType]] = {}
        for member in get_args(annotation):
            name = text_of(member)
            if name in self._members:
                raise AnnotationError(f"`{self._text}`: two members of the union have the name {name}; rename one")
            self._members[name] = (member, payload_type(member))

    def encode(self, value: Any, what: str = "value", place: ValuePath = ROOT) -> bytes:
        """See `PayloadType`."""
        if place.tried is None:
            return self._encode(value, what, place._replace(tried={}))
        key = (id(self), id(value), place.path)
        if key not in place.tried:
            try:
                place.tried[key] = (value, self._encode(value, what, place))
            except PayloadError as error:
                place.tried[key] = (value, error)
        _, result = place.tried[key]
        if isinstance(result, PayloadError):
            raise result
        return result

    def _encode(self, value: Any, what: str, place: ValuePath) -> bytes:
        nearest: PayloadError | None = None
        for name, (annotation, member) in self._members.items():
            try:
                inner = member.encode(value, what, place)
            except PayloadError as error:
                if annotation is type(value):
                    nearest = error
            else:
                return b'{"$type":%b,"value":%b}' % (_encode_json(name), inner)
        raise nearest or PayloadError(
            f"{what} cannot be stored as JSON: at `{place.path}`: expected {self._text}, found {name_of(value)}; "
            "change the value or the annotation"
        )

    @property
    def read(self) -> Callable[[bytes | msgspec.Raw], Any]:
        """See `PayloadType`."""
        return lambda data: self.decode(bytes(data))

    def decode(self, data: bytes, what: str = "payload", path: str = "$", choices: Choices | None = None) -> Any:
        """See `PayloadType`."""
        tagged = _read_tag(data)
        if tagged is not None and tagged.type in self._members:
            return self._members[tagged.type][1].decode(bytes(tagged.value), what, path, choices)
        choices = {} if choices is None else choices
        fitting = choices.get((id(self), data))
        if fitting is None:
            values: dict[str, Any] = {}
            for name, (_annotation, member) in self._members.items():
                with suppress(PayloadError):
                    values[name] = member.decode(data, what, path, choices)
            fitting = choices[id(self), data] = list(values)
            if len(values) == 1:
                return values.popitem()[1]
        elif len(fitting) == 1:
            return self._members[fitting[0]][1].decode(data, what, path, choices)
        fits = f"{len(fitting)} members" if fitting else "no member"
        raise PayloadError(
            f"{what} cannot be read: {fits} of `{self._text}` can be read from it - at `{path}`; "
            'send {"$type": <name>, "value": ...} with one of the names ' + ", ".join(self._members)
        )


class _Tag(msgspec.Struct, forbid_unknown_fields=True):
    type: str = msgspec.field(name="$type")
    value: msgspec.Raw


_tag_decoder: Final = msgspec.json.Decoder(_Tag)


def _read_tag(data: bytes) -> _Tag | None:
    try:
        return _tag_decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def text_of(annotation: Any) -> str:
    """An annotation as its author wrote it, as far as possible."""
    if annotation is None or annotation is NoneType:
        return "None"
    if isinstance(annotation, type) and not get_args(annotation):
        return annotation.__name__
    return str(annotation).replace("typing.", "")


def _build(annotation: Any) -> PayloadType:
    if annotation is None:
        annotation = NoneType
    if annotation is object:
        annotation = Any
    written = annotation
    annotation = with_constraints(annotation)
    try:
        node = inspect.type_info(annotation)
        decoder = msgspec.json.Decoder(annotation, dec_hook=decode_unknown)
    except NameError as error:
        raise AnnotationError(
            f"`{text_of(annotation)}` refers to the name {error.name!r}, which does not exist at run time; "
            f"{UNRESOLVED_HINT}"
        ) from error
    except Exception as error:
        if isinstance(error, TypeError) and (nested := _nested(annotation, error)):
            return nested
        hint = _union_hint(annotation) if "union" in str(error) else _TYPES_HINT
        raise AnnotationError(f"`{text_of(annotation)}` cannot be stored as JSON: {error}; {hint}") from error
    nodes = list(_nodes_of(node))
    if unknown := next(filter(_is_unknown, nodes), None):
        raise AnnotationError(
            f"`{text_of(annotation)}` contains `{text_of(cast('Any', unknown).cls)}`, which cannot be stored as JSON; "
            f"{_TYPES_HINT}"
        )
    if refused := next(filter(None, map(_refused_key, nodes)), None):
        raise AnnotationError(
            f"`{text_of(annotation)}` has a dict with keys of type {describe(refused)}, and the keys of a JSON object "
            "are strings or numbers; use str keys, or a list of pairs such as list[tuple[KEY, VALUE]]"
        )
    unconstrained = None
    if annotation != written:
        lax = msgspec.json.Decoder(written, dec_hook=decode_unknown)
        unconstrained = _Typed(lax.decode, inspect.type_info(written))
    return _Typed(decoder.decode, node, unconstrained)


def _nested(annotation: Any, error: TypeError) -> PayloadType | None:
    """A type that msgspec refuses because of a union, which may be inside of it; None if it cannot be stored."""
    part = part_of(annotation, payload_type) if "union" in str(error) else None
    if isinstance(part, DataclassPart):
        _cache[annotation] = part  # its fields may name it
        try:
            _ = part.fields
        except AnnotationError:
            _cache.pop(annotation, None)
            raise
    if part is None and get_origin(annotation) in (Union, UnionType):
        return _Tagged(annotation)
    return part


def _union_hint(annotation: Any) -> str:
    """The advice for a type with a union that `part_of` does not support."""
    origin = get_origin(annotation)
    if origin is Annotated:
        advice = f"write `{text_of(get_args(annotation)[0])}` without Annotated"
    elif origin is dict and get_args(annotation)[1] is None:
        return "the keys of a JSON object are strings: use keys of one type"
    elif is_dataclass(origin):
        advice = (
            f"write a dataclass that is not generic, with the union in its field, instead of {text_of(origin)}[...]"
        )
    else:
        advice = (
            f"use a dataclass that is not generic, a list, a tuple, a set or a dict instead of {text_of(annotation)}"
        )
    return (
        f"JSON does not show which member of the union a value is: {advice}, so that the name of the member is stored; "
        "or make all members of the union msgspec structs with tag=True"
    )


def decoder_of_fields(fields: Sequence[tuple[str, Any]]) -> Callable[[bytes], tuple[Any, ...]] | None:
    """Reads the values of an object that has exactly these fields, in one step; None if msgspec alone cannot.

    A mismatch raises an error of msgspec; decoding the fields one by one gives a better message.
    """
    if not all(isinstance(payload_type(annotation), _Typed) for _, annotation in fields):
        return None
    plain = [(name, Any if annotation is object else with_constraints(annotation)) for name, annotation in fields]
    struct = msgspec.defstruct("Fields", plain, forbid_unknown_fields=True)
    decode_json = msgspec.json.Decoder(struct, dec_hook=decode_unknown).decode
    return lambda data: astuple(decode_json(data))


def _nodes_of(root: inspect.Type) -> Iterator[inspect.Type]:
    """`root` and the types inside of it, each once."""
    seen: set[int] = set()
    waiting: list[Any] = [root]
    while waiting:
        node = waiting.pop()
        if node.__class__ is tuple:
            waiting.extend(node)
        elif isinstance(node, inspect.Type | inspect.Field) and id(node) not in seen:
            seen.add(id(node))
            waiting.extend(getattr(node, name) for name in node.__struct_fields__)
            if isinstance(node, inspect.Type):
                yield node


def _is_unknown(node: inspect.Type) -> bool:
    """Whether neither msgspec nor a model can read it."""
    return isinstance(node, inspect.CustomType) and node.cls is not object and not is_model_type(node.cls)


def _refused_key(node: inspect.Type) -> inspect.Type | None:
    """The type of the keys of a dict, where JSON cannot write them."""
    if not isinstance(node, inspect.DictType):
        return None
    keys = node.key_type.types if isinstance(node.key_type, inspect.UnionType) else (node.key_type,)
    return next((key for key in keys if isinstance(key, _NO_KEYS)), None)
