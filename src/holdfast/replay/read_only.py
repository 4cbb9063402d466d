"""Code that may only look: queries, and the validators of updates. Nothing of what they do counts.

While such code runs, a loop stands in the place of the workflow's own that refuses whatever would change something, and
says so where it is called. What goes past it (a future of the workflow that is resolved by hand) is found afterwards.
"""

from collections.abc import AsyncGenerator, Callable
from inspect import isawaitable, iscoroutine
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from holdfast.errors import NotReadOnly, TurnTooLong
from holdfast.replay.refusals import IsolatedLoop
from holdfast.replay.running import SliceRunner, run_in_place

if TYPE_CHECKING:
    from holdfast.replay.calls import WorkflowCalls
    from holdfast.replay.loop import WorkflowLoop
    from holdfast.replay.output import TurnOutput

T = TypeVar("T")


class ReadOnlyLoop(IsolatedLoop):
    """The running loop of code that may only look. `what` names that code in errors."""

    def __init__(self, what: str, calls: "WorkflowCalls") -> None:
        self._what = what
        self.calls = calls

    def run(self, watch: SliceRunner, work: Callable[[], T]) -> T:
        """Call `work` with this loop as the running one. A result that would have to be awaited is refused."""
        value = run_in_place(self, watch, work)
        if isawaitable(value):
            if iscoroutine(value):
                value.close()
            self.refuse()
        return value

    def refuse(self) -> NoReturn:
        """Say what such code may not do."""
        raise NotReadOnly(
            f"{self._what} may only look: it called what would change the workflow, or would have to wait. "
            "Let an update, an event or the workflow itself do that"
        )

    def hold_generator(self, generator: AsyncGenerator[Any, Any]) -> None:
        """Nobody closes a generator that such code leaves over: it never ran."""

    def time(self) -> float:
        return self.calls.now_ms / 1000

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return True

    def is_closed(self) -> bool:
        return False

    def _refused(self, *_arguments: object, **_options: object) -> NoReturn:
        self.refuse()

    call_soon: Callable[..., NoReturn] = _refused  # type: ignore[assignment] # variadic
    call_soon_threadsafe: Callable[..., NoReturn] = _refused  # type: ignore[assignment] # variadic
    call_later: Callable[..., NoReturn] = _refused  # type: ignore[assignment] # variadic
    call_at: Callable[..., NoReturn] = _refused  # type: ignore[assignment] # variadic
    create_future: Callable[..., NoReturn] = _refused
    next_number: Callable[..., NoReturn] = _refused
    get_task_factory: Callable[..., NoReturn] = _refused
    get_exception_handler: Callable[..., NoReturn] = _refused

    def create_task(self, coro: Any, **options: Any) -> NoReturn:
        del options
        coro.close()
        self.refuse()

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        del context  # a finaliser's, and none of this code's business


def is_untouched(loop: "WorkflowLoop", output: "TurnOutput") -> bool:
    """Whether code that may only look has left all as it was: nothing is ready to run, and nothing was done."""
    if loop.is_closed():
        return True
    try:
        loop.run_until_idle(max_steps=0)
    except TurnTooLong:
        return False
    besides = output.besides
    return not (output.events or output.scheduled or (besides is not None and (besides.sent or besides.kept)))
