"""Events: named data raised to an instance from outside or by another workflow.

``await hf.event("approval", Approval)`` waits for one, ``async for`` over ``hf.events(...)`` for one after the other.
An `Event` is a typed channel that sender and receiver share: ``approval = hf.Event[Approval]("approval")``, then
``await approval`` in the workflow and ``await handle.raise_event(approval, Approval(ok=True))`` outside.
"""

from collections.abc import AsyncIterator, Generator
from typing import Any, Final, Generic, TypeVar, cast, get_args, overload

from holdfast.authoring.validation import checked_name, checked_reason
from holdfast.authoring.workflow_api import current
from holdfast.errors import InvalidOption
from holdfast.payloads.encoding import encode, payload_type
from holdfast.replay.events import SentMessage

T = TypeVar("T")

_JSON_TYPES: Final = frozenset({dict, list, str, int, float, bool, type(None)})


class Event(Generic[T]):
    """A typed channel that sender and receiver share: ``hf.Event[Approval]("approval")``."""

    def __init__(self, name: str) -> None:
        self.name = checked_name(name, "an event")

    @property
    def annotation(self) -> Any:
        """The type of its values; `Any` if none was given."""
        return next(iter(get_args(getattr(self, "__orig_class__", None))), Any)

    def __await__(self) -> Generator[Any, Any, T]:
        return self._next().__await__()

    async def _next(self) -> T:
        return cast("T", await _wait(self.name, self.annotation))

    async def __aiter__(self) -> AsyncIterator[T]:
        while True:
            yield await self

    def __repr__(self) -> str:
        return f"<event {self.name}>"


@overload
async def event(name: str, annotation: type[T]) -> T: ...
@overload
async def event(name: str, annotation: type[object]) -> object: ...  # type: ignore[overload-cannot-match]  # see below
@overload
async def event(name: str, annotation: Any = Any) -> Any: ...
async def event(name: str, annotation: Any = Any) -> Any:
    """Wait for the next event of this name. Each wait receives one event, in the order in which they were raised."""
    # Where the expected type contradicts a class (`x: str = await hf.event("e", int)`), mypy leaves the first overload
    # and tries the next ones: the second keeps it from the last, whose Any would hide the mistake.
    return await _wait(checked_name(name, "an event"), annotation)


@overload
def events(name: str, annotation: type[T]) -> AsyncIterator[T]: ...
@overload
def events(name: str, annotation: type[object]) -> AsyncIterator[object]: ...  # type: ignore[overload-cannot-match]
@overload
def events(name: str, annotation: Any = Any) -> AsyncIterator[Any]: ...
async def events(name: str, annotation: Any = Any) -> AsyncIterator[Any]:
    """The events of this name, one after the other, without end."""
    while True:
        yield await event(name, annotation)


class Sending:
    """A message to another instance, sent with the commit of this turn. ``await`` it to know that it was taken.

    The wait raises `InstanceNotFound`, `InstanceClosed` or `MailboxFull` if it was not.
    """

    __slots__ = ("_message",)

    def __init__(self, message: SentMessage) -> None:
        self._message = message

    def __await__(self) -> Generator[Any, Any, None]:
        inputs = current("await of a sent message").context.inputs
        return self._message.delivered(inputs=inputs).__await__()


@overload
def raise_event(target: str, event: Event[T], value: T) -> Sending: ...
@overload
def raise_event(target: str, event: str, value: Any = None) -> Sending: ...
def raise_event(target: str, event: "str | Event[Any]", value: Any = None) -> Sending:
    """Raise an event to another instance, with the commit of this turn. Without ``await`` a refusal is only logged."""
    name, data = encoded_event(event, value)
    events = current("hf.raise_event").events
    return Sending(events.raise_event(checked_name(target, "an instance"), name, data, value))


def cancel(target: str, reason: str | None = None) -> Sending:
    """Ask another instance to end, with the commit of this turn. Without ``await`` a refusal is only logged.

    The wait ends when the request was taken; the code of the instance may clean up for as long as it needs.
    """
    events = current("hf.cancel").events
    return Sending(events.cancel(checked_name(target, "an instance"), checked_reason(reason)))


def encoded_event(event: "str | Event[Any]", value: Any) -> tuple[str, bytes]:
    """The name and the encoded value; a value that does not fit the channel is a `PayloadError`."""
    if isinstance(event, Event):
        return event.name, encode(value, event.annotation, what=f"the value of event {event.name!r}")
    name = checked_name(event, "an event")
    return name, encode_by_class(value, f"the value of event {name!r}")


def encode_by_class(value: object, what: str) -> bytes:
    """Encode a value whose receiver has the annotation and whose sender has none: events, queries and updates by name.

    Values of the JSON types are encoded as they are, others by their own class. A subclass of `dict` or `list` is an
    `AnnotationError`, because the receiver would get the base class.
    """
    kind = cast("Any", type(value))
    return encode(value, Any if kind in _JSON_TYPES else kind, what=what)


def named_value(event: Any) -> "tuple[str | Event[Any], Any]":
    """The pair that ``start(..., event=...)`` takes; anything else, also a single string, is an `InvalidOption`."""
    if not isinstance(event, tuple) or len(cast("Any", event)) != 2:  # noqa: PLR2004 - a pair
        raise InvalidOption(f'event takes a name and a value, such as event=("approval", value), not {event!r}')
    name, value = cast("tuple[str | Event[Any], Any]", event)
    return name, value


async def _wait(name: str, annotation: Any) -> Any:
    kind = payload_type(annotation)
    return await current("hf.event").events.wait(name, lambda data: kind.decode(data, f"event {name!r}"))
