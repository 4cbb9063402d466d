"""What workflow code shows of itself: a status and key-values, visible outside once the turn is committed (G11)."""

import asyncio
from collections.abc import Callable, Iterator
from typing import Any, Final, TypeVar, overload

from holdfast.authoring.validation import Duration, checked_duration_ms
from holdfast.authoring.workflow_api import current, readable_run
from holdfast.errors import InvalidOption, PayloadTooLarge
from holdfast.payloads.encoding import decode, encode
from holdfast.replay.state import WorkflowState

T = TypeVar("T")
STATUS_KEY: Final = ""
MAX_KEYS: Final = 1_000
MAX_KEY_CHARACTERS: Final = 200
MAX_VALUE_BYTES: Final = 65_536
"""A large value belongs into the result of an activity: what is kept is carried over by continue-as-new."""


def _own_type(value: object) -> Any:
    """What a value is encoded as where no type is given: a dataclass as itself, so that `get` can read it as one."""
    return Any if value is None or isinstance(value, dict | list) else type(value)


def set_status(value: Any) -> None:
    """Say where the workflow is, for people and programs: `describe().custom_status`, ``holdfast list`` and ``show``.

    Any value that JSON can hold; a later one replaces it.
    """
    _keep(current("hf.set_status").shown, STATUS_KEY, encode(value, _own_type(value), what="the status"), "the status")


class State:
    """The key-values of the instance: ``hf.state["cart"] = items``. Continue-as-new carries them over.

    A value that is read is a copy: change it, and assign it again. From outside: ``await handle.state()``.
    """

    def __setitem__(self, key: str, value: Any) -> None:
        self.set(key, value, _own_type(value))

    def set(self, key: str, value: Any, annotation: Any) -> None:
        """Set a value of a type that does not show: ``hf.state.set("cart", items, list[Item])``."""
        shown = current("hf.state").shown
        what = f"the value of {_checked(key)!r}"
        if key not in shown.kept and len(self) >= MAX_KEYS:
            raise InvalidOption(f"hf.state holds at most {MAX_KEYS:,} keys; {key!r} would be one more")
        _keep(shown, key, encode(value, annotation, what=what), what)

    def __getitem__(self, key: str) -> Any:
        return decode(readable_run("hf.state").shown.kept[_checked(key)])

    def __delitem__(self, key: str) -> None:
        shown = current("hf.state").shown
        if _checked(key) not in shown.kept:
            raise KeyError(key)
        shown.set(key, None)

    def __contains__(self, key: object) -> bool:
        return key != STATUS_KEY and key in readable_run("hf.state").shown.kept

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(key for key in readable_run("hf.state").shown.kept if key != STATUS_KEY))

    def __len__(self) -> int:
        kept = readable_run("hf.state").shown.kept
        return len(kept) - (STATUS_KEY in kept)

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
        data = readable_run("hf.state").shown.kept.get(_checked(key))
        return default if data is None else decode(data, annotation)


state: Final = State()


async def wait_until(predicate: Callable[[], object], timeout: Duration | None = None) -> None:  # noqa: ASYNC109 - part of the design
    """Wait until a plain function of the workflow's own variables is true, or `TimeoutError` after `timeout`.

    It is asked now, and again after every message that the workflow has handled. Of several waiters the oldest whose
    condition is true goes on first. The time-out is a durable timer.
    """
    conditions = current("hf.wait_until").shown.conditions
    seconds = None if timeout is None else checked_duration_ms(timeout, "timeout") / 1000
    async with asyncio.timeout(seconds):
        await conditions.wait(predicate)


def _keep(shown: WorkflowState, key: str, data: bytes, what: str) -> None:
    if len(data) > MAX_VALUE_BYTES:
        raise PayloadTooLarge(f"{what} is {len(data):,} bytes long, and at most {MAX_VALUE_BYTES:,} are kept")
    shown.set(key, data)


def _checked(key: object) -> str:
    if not isinstance(key, str) or not 1 <= len(key) <= MAX_KEY_CHARACTERS:
        raise InvalidOption(f"a key of hf.state is a text of 1 to {MAX_KEY_CHARACTERS} characters, not {key!r}")
    encode(key, str, what="a key of hf.state")
    return key
