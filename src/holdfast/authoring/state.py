"""``hf.state``, ``hf.set_status`` and ``hf.wait_until``: values visible outside once the turn is committed (G11)."""

import asyncio
from collections.abc import Callable, Iterator
from typing import Any, Final, TypeVar, overload

from holdfast.authoring.validation import Duration, checked_duration_ms
from holdfast.authoring.workflow_api import current, readable_run
from holdfast.errors import InvalidOption, PayloadTooLarge
from holdfast.payloads.encoding import decode, encode, encode_untyped
from holdfast.replay.state import WorkflowState

T = TypeVar("T")
STATUS_KEY: Final = ""
MAX_KEYS: Final = 1_000
MAX_KEY_CHARACTERS: Final = 200
MAX_VALUE_BYTES: Final = 65_536
"""A large value belongs into the result of an activity: continue-as-new carries all state values over."""


def set_status(value: Any) -> None:
    """Set the status of the instance, for people and programs: `describe().custom_status`, ``holdfast list``, ``show``.

    Any value that JSON can hold; a later one replaces it.
    """
    what = "the status"
    _set(current("hf.set_status").state, STATUS_KEY, encode_untyped(value, what=what), what)


class State:
    """The state values of the instance: ``hf.state["cart"] = items``. Continue-as-new carries them over.

    A value that is read is a copy: change it, and assign it again. From outside: ``await handle.state()``.
    """

    def __setitem__(self, key: str, value: Any) -> None:
        what = self._check_assignment(key)
        _set(current("hf.state").state, key, encode_untyped(value, what=what), what)

    def set(self, key: str, value: Any, annotation: Any) -> None:
        """Set a value whose class does not show its type: ``hf.state.set("cart", items, list[Item])``."""
        what = self._check_assignment(key)
        _set(current("hf.state").state, key, encode(value, annotation, what=what), what)

    def _check_assignment(self, key: str) -> str:
        """The description of a value for errors, unless there are too many keys."""
        values = current("hf.state").state.values
        if _checked(key) not in values and len(self) >= MAX_KEYS:
            raise InvalidOption(f"hf.state holds at most {MAX_KEYS:,} keys; {key!r} would be one more")
        return f"the value of {key!r}"

    def __getitem__(self, key: str) -> Any:
        return decode(_readable_values()[_checked(key)])

    def __delitem__(self, key: str) -> None:
        state = current("hf.state").state
        if _checked(key) not in state.values:
            raise KeyError(key)
        state.delete(key)

    def __contains__(self, key: object) -> bool:
        return key != STATUS_KEY and key in _readable_values()

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(key for key in _readable_values() if key != STATUS_KEY))

    def __len__(self) -> int:
        values = _readable_values()
        return len(values) - (STATUS_KEY in values)

    @overload
    def get(self, key: str) -> Any: ...
    @overload
    def get(self, key: str, annotation: type[T]) -> T | None: ...
    @overload
    def get(self, key: str, annotation: type[T], default: T) -> T: ...
    @overload
    def get(  # keeps mypy from the last one; see `events.event`
        self, key: str, annotation: type[object], default: object = None
    ) -> object: ...
    @overload
    def get(self, key: str, annotation: Any = Any, default: Any = None) -> Any: ...
    def get(self, key: str, annotation: Any = Any, default: Any = None) -> Any:
        """A value as the type it had, or `default` if there is none: ``hf.state.get("cart", list[Item], [])``."""
        data = _readable_values().get(_checked(key))
        return default if data is None else decode(data, annotation)


state: Final = State()


async def wait_until(predicate: Callable[[], object], timeout: Duration | None = None) -> None:  # noqa: ASYNC109 - part of the design
    """Wait until a plain function of the workflow's own variables is true, or `TimeoutError` after `timeout`.

    The predicate is evaluated now, and again after every message that the workflow has handled. Of several waiters the
    oldest whose condition is true continues first. The time-out is a durable timer.
    """
    conditions = current("hf.wait_until").state.conditions
    seconds = None if timeout is None else checked_duration_ms(timeout, "timeout") / 1000
    async with asyncio.timeout(seconds):
        await conditions.wait(predicate)


def _readable_values() -> dict[str, bytes]:
    return readable_run("hf.state").state_values


def _set(state: WorkflowState, key: str, data: bytes, what: str) -> None:
    if len(data) > MAX_VALUE_BYTES:
        raise PayloadTooLarge(f"{what} is {len(data):,} bytes long, and at most {MAX_VALUE_BYTES:,} are kept")
    state.set(key, data)


def _checked(key: object) -> str:
    if not isinstance(key, str) or not 1 <= len(key) <= MAX_KEY_CHARACTERS:
        raise InvalidOption(f"a key of hf.state is a string of 1 to {MAX_KEY_CHARACTERS} characters, not {key!r}")
    encode(key, str, what="a key of hf.state")
    return key
