"""The arguments of a call as one payload, and the result as another, typed by the function's annotations.

Arguments are stored as a JSON object by parameter name: ``{"card": "4242", "cents": 300}``. Arguments by position and
by name give the same payload, so that equal calls have equal hashes, a parameter may move, and a person can read the
payload. An array, by position, is accepted when reading, for senders that write JSON by hand.

Arguments that the caller omits are not stored. The default of the code that runs the call applies, so clients that know
a function only by name store the same payload as those that import it, and a default may be any object, also one that
JSON cannot hold. The price: a new default also holds for calls that are under way. It is a change of code like any
other, and `hf.patched` covers it.

``None`` is a value (``null``) and differs from an argument that is omitted.

`input_hash` is the hash of an input (G3). Inputs are equal if they differ only in the order of keys, in white space, in
escapes (``\\u00e9`` or the letter) and in the form of numbers (``1``, ``1.0``, ``1e0``). The hash is of the plaintext,
before any codec. It is stored, so it must never change: tests fix the canonical form with known values (keys sorted, no
white space, whole numbers without a point, other numbers in their shortest form).
"""

import hashlib
import inspect
import math
from collections.abc import Callable, Mapping
from types import FunctionType, NoneType, SimpleNamespace
from typing import Any, Final, Never, NoReturn, get_args, get_type_hints

import msgspec

from holdfast.errors import AnnotationError, ArgumentError, MalformedPayload, PayloadError
from holdfast.payloads.encoding import (
    UNRESOLVED_HINT,
    decoder_of_fields,
    payload_type,
    reads_bytes,
    text_of,
)
from holdfast.payloads.nested_unions import PayloadType
from holdfast.payloads.pydantic_models import is_field

Arguments = tuple[tuple[Any, ...], dict[str, Any]]
"""Arguments of a call: ``function(*arguments[0], **arguments[1])``."""

_RETURN: Final = "return"
LONGEST_NAME: Final = 100
"""The number of characters of an unknown name that an error shows."""
_by_name: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_by_position: Final = msgspec.json.Decoder(list[msgspec.Raw])
_encode_name: Final = msgspec.json.Encoder().encode


class _Parameter:
    """One parameter, with everything that is the same for all calls."""

    __slots__ = (
        "annotation",
        "keyword_only",
        "kind",
        "label",
        "name",
        "opening",
        "positional_only",
        "required",
        "what",
    )

    def __init__(self, function_name: str, parameter: inspect.Parameter, annotation: Any) -> None:
        self.name = parameter.name
        self.required = parameter.default is inspect.Parameter.empty
        self.positional_only = parameter.kind is inspect.Parameter.POSITIONAL_ONLY
        self.keyword_only = parameter.kind is inspect.Parameter.KEYWORD_ONLY
        self.annotation = annotation
        self.kind = _type_for(annotation, f"{function_name}(): parameter `{self.name}`")
        self.label = _encode_name(self.name) + b":"
        self.opening = b"{" + self.label
        self.what = f"{function_name}(): argument `{self.name}`"


class Signature:
    """The arguments and the result of a function as payloads. Made once, when the function is registered.

    For a generator, ``async`` or not, "result" means one item that it yields.
    """

    __slots__ = (
        "_all_at_once",
        "_count",
        "_parameters",
        "_positional",
        "_result",
        "_signature",
        "_what",
        "name",
        "read_result",
        "yields",
    )

    def __init__(self, function: Callable[..., Any], *, yields: bool = False) -> None:
        plain = _plain_function(function)
        self.name = plain.__qualname__
        self.yields = yields or inspect.isasyncgenfunction(plain) or inspect.isgeneratorfunction(plain)
        self._signature = inspect.signature(function)
        self._what = f"the result of {self.name}()"
        hints = _hints(plain, self.name)
        self._parameters = {
            parameter.name: _Parameter(self.name, _storable(parameter, self.name), hints.get(parameter.name, Any))
            for parameter in self._signature.parameters.values()
        }
        self._positional = tuple(entry for entry in self._parameters.values() if not entry.keyword_only)
        self._count = len(self._positional) if len(self._positional) == len(self._parameters) else -1
        """The number of arguments of a call by position alone; -1 if the function has keyword-only parameters."""
        self._all_at_once = _decoder_of_all(tuple(self._parameters.values()))
        result = hints.get(_RETURN, Any)
        if result in (NoReturn, Never):
            result = NoneType  # it only raises
        self._result = _type_for(_item_type(result) if self.yields else result, self._what)
        self.read_result = self._result.read
        """As `decode_result`, but faster, and a mismatch raises any exception."""

    @classmethod
    def of(cls, function: Callable[..., Any]) -> "Signature":
        """The signature of `function`; hints that cannot be resolved or stored are an `AnnotationError`."""
        return cls(function)

    def encode_arguments(self, args: tuple[Any, ...], kwargs: Mapping[str, Any] | None = None) -> bytes:
        """One payload for the arguments of a call, or an `ArgumentError` that names function and argument."""
        count = len(args)
        if kwargs or count != self._count:
            return self._encode_bound(args, kwargs or {})
        try:
            if count == 1:  # the most frequent call
                entry = self._positional[0]
                data = entry.opening + entry.kind.encode(args[0], entry.what) + b"}"
            else:
                data = b"{%b}" % b",".join(
                    [
                        entry.label + entry.kind.encode(value, entry.what)
                        for entry, value in zip(self._positional, args, strict=True)
                    ]
                )
        except PayloadError as error:
            raise ArgumentError(str(error)) from error
        return data

    def _encode_bound(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bytes:
        try:
            bound = self._signature.bind(*args, **kwargs)
        except TypeError as error:
            self._refuse_unknown(kwargs)
            raise ArgumentError(f"{self.name}{self._signature}: {error}; correct the call") from error
        parts: list[bytes] = []
        for name, value in bound.arguments.items():
            entry = self._parameters[name]
            try:
                parts.append(entry.label + entry.kind.encode(value, entry.what))
            except PayloadError as error:
                raise ArgumentError(str(error)) from error
        return b"{%b}" % b",".join(parts)

    def decode_arguments(self, data: bytes) -> Arguments:
        """What to call the function with. Unknown, missing and mistyped arguments are an `ArgumentError`."""
        all_at_once = self._all_at_once
        if all_at_once is not None:
            try:
                return all_at_once(data), {}
            except Exception:  # noqa: BLE001, S110 - decoding one by one finds the argument that is wrong
                pass
        return self._decode_one_by_one(data)

    def _decode_one_by_one(self, data: bytes) -> Arguments:
        stored = self._read(data)
        self._refuse_unknown(stored)  # before missing ones: it may be a misspelled one
        args: list[Any] = []
        kwargs: dict[str, Any] = {}
        found = 0
        for name, entry in self._parameters.items():
            raw = stored.get(name)
            if raw is None:
                if entry.required:
                    raise ArgumentError(f"{entry.what} is missing and has no default; send it")
                continue
            found += 1
            try:
                value = entry.kind.decode(bytes(raw), entry.what)
            except PayloadError as error:
                raise ArgumentError(str(error)) from error
            if not entry.keyword_only and len(args) == found - 1 and not kwargs and self._is_next(entry, args):
                args.append(value)
            elif entry.positional_only:
                raise ArgumentError(f"{entry.what} is positional, and one before it was left out; send both")
            else:
                kwargs[name] = value
        return tuple(args), kwargs

    def _refuse_unknown(self, given: Mapping[str, Any]) -> None:
        """Raise an error that has the known names, and the one closest to an unknown name."""
        if given.keys() <= self._parameters.keys():
            return
        from difflib import get_close_matches  # noqa: PLC0415 - only for the error

        name = next(name for name in given if name not in self._parameters)
        near = get_close_matches(name, [known for known in self._parameters if known not in given], n=1)
        hint = f" (did you mean {near[0]}?)" if near else ""
        takes = ", ".join(self._parameters) or "none"
        raise ArgumentError(f"{self.name}() has no argument {name[:LONGEST_NAME]!r}{hint}; its arguments: {takes}")

    def _is_next(self, entry: _Parameter, args: list[Any]) -> bool:
        return self._positional[len(args)] is entry

    def _read(self, data: bytes) -> Mapping[str, Any]:
        """The undecoded arguments by name."""
        try:
            if data.lstrip()[:1] != b"[":
                return _by_name.decode(data)
            items = _by_position.decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise ArgumentError(
                f"{self.name}(): the arguments must be a JSON object by name or an array by position: {error}"
            ) from error
        if len(items) > len(self._positional):
            is_one = len(self._positional) == 1
            remedy = "an array that is the only argument is in another array: [[...]]" if is_one else "send fewer"
            raise ArgumentError(
                f"{self.name}{self._signature} takes {len(self._positional)} argument{'' if is_one else 's'} by "
                f"position, not {len(items)}; {remedy}"
            )
        return {entry.name: item for entry, item in zip(self._positional, items, strict=False)}

    def normalise(self, data: bytes) -> bytes:
        """The payload that this library writes for the same arguments: for JSON that was written by hand."""
        return self.encode_arguments(*self.decode_arguments(data))

    def encode_result(self, value: Any) -> bytes:
        """The payload of a result, or of one item that a generator yields."""
        return self._result.encode(value, self._what)

    def decode_result(self, data: bytes | msgspec.Raw) -> Any:
        """The result, of the annotated type."""
        read = self.read_result
        try:
            return read(data)
        except Exception:  # noqa: BLE001 - `decode` raises it as a PayloadError
            return self._result.decode(bytes(data), self._what)

    def decode_bytes(self, data: bytes) -> bytes | bytearray | None:
        """The result if it is `bytes`; None otherwise, and then `data` is not decoded: it may be large."""
        return self.decode_result(data) if reads_bytes(self._result) and data[:1] == b'"' else None


def _plain_function(function: Callable[..., Any]) -> FunctionType:
    plain = inspect.unwrap(getattr(function, "__func__", function))
    if not isinstance(plain, FunctionType):
        raise AnnotationError(f"expected a function or method, found {type(function).__qualname__}; wrap it")
    return plain


def _storable(parameter: inspect.Parameter, function_name: str) -> inspect.Parameter:
    """`parameter` itself; an `AnnotationError` if it takes any number of arguments, which have no names."""
    if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
        raise AnnotationError(f"{function_name}(): `*{parameter.name}` cannot be stored by name; take a list")
    if parameter.kind is inspect.Parameter.VAR_KEYWORD:
        raise AnnotationError(f"{function_name}(): `**{parameter.name}` cannot be stored by type; take a dict")
    if is_field(parameter.default):
        raise AnnotationError(
            f"{function_name}(): parameter `{parameter.name}` has pydantic's Field(...) as its default, which is not "
            f"checked; write `{parameter.name}: Annotated[TYPE, Field(...)]`"
        )
    return parameter


def _hints(function: FunctionType, function_name: str) -> dict[str, Any]:
    """The annotations, resolved; the error names the parameter whose annotation cannot be."""
    try:
        return get_type_hints(function, include_extras=True)
    except Exception as error:
        culprit = _unresolvable(function)
        raise AnnotationError(
            f"{function_name}(): the annotation of {culprit} cannot be resolved: {error}; {UNRESOLVED_HINT}"
        ) from error


def _unresolvable(function: FunctionType) -> str:
    for name, annotation in function.__annotations__.items():
        probe = SimpleNamespace(__annotations__={name: annotation})
        try:
            get_type_hints(probe, function.__globals__)
        except Exception:  # noqa: BLE001  whatever it is, this is the annotation that raises it
            return "the result" if name == _RETURN else f"parameter `{name}`"
    return "a parameter"


def _type_for(annotation: Any, what: str) -> PayloadType:
    try:
        return payload_type(annotation)
    except AnnotationError as error:
        raise AnnotationError(f"{what}: {error}") from error


def _decoder_of_all(parameters: tuple[_Parameter, ...]) -> Callable[[bytes], tuple[Any, ...]] | None:
    """Reads calls with all arguments by position, which nearly all are, five times faster than one by one."""
    if any(entry.keyword_only or not entry.required for entry in parameters):
        return None
    return decoder_of_fields([(entry.name, entry.annotation) for entry in parameters])


def _item_type(annotation: Any) -> Any:
    """``T`` of ``AsyncIterator[T]``, ``AsyncGenerator[T, None]`` and their like."""
    if annotation is Any:
        return Any
    arguments = get_args(annotation)
    if not arguments and getattr(annotation, "__module__", "") not in ("collections.abc", "typing"):
        raise AnnotationError(
            "a generator is annotated with the iterator that it returns, such as AsyncIterator[str], "
            f"not `{text_of(annotation)}`"
        )
    return arguments[0] if arguments else Any


def _whole_if_possible(text: str) -> int | float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"the number {text[:20]} is too large")
    return int(number) if number.is_integer() else number


_decode = msgspec.json.Decoder(float_hook=_whole_if_possible).decode
_encode = msgspec.json.Encoder(order="sorted").encode


def canonical_form(data: bytes) -> bytes:
    """The text that all JSON with the content of `data` has in common."""
    try:
        return _encode(_decode(data))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, ValueError) as error:
        raise MalformedPayload(f"the input is not valid JSON, so it has no hash: {error}") from error


def input_hash(data: bytes) -> bytes:
    """The SHA-256 of the canonical form: `HASH_BYTES` bytes that are equal if and only if the inputs are."""
    return hashlib.sha256(canonical_form(data)).digest()
