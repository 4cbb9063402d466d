"""The state that the parts of one run of workflow code share: loop, output of the turn, large payloads, limits.

The parts (`activities`, `streams`, `events`, `children`, `state`, `queries`, `updates`) hold the context and write
commands into its output. The context holds none of the parts.
"""

from collections.abc import Callable
from typing import Final

import msgspec

from holdfast.core.history import Payload
from holdfast.core.run import LogLine, TurnOutput
from holdfast.payloads.failures import RecordedFailure, Resolver, to_exception
from holdfast.payloads.limits import PayloadLimit
from holdfast.replay.guard import Guarded
from holdfast.replay.loop.event_loop import WorkflowLoop
from holdfast.replay.loop.tasks import Evicted

LIMIT_IS_FIXED: Final = (
    "raise payload_limit of the worker: an execution keeps the limit that it began with, so a new instance, or the "
    "next execution after hf.continue_as_new, has the new limit"
)
_decode_failure: Final = msgspec.json.Decoder(RecordedFailure).decode


class RunContext:
    """One for each run. `guarded` makes the guard of one slice of code."""

    __slots__ = (
        "errors",
        "guarded",
        "inputs",
        "is_preview",
        "is_tainted",
        "limit",
        "loop",
        "needs_turn",
        "output",
        "payloads",
        "replaying",
        "resolve",
    )

    def __init__(
        self,
        loop: WorkflowLoop,
        payloads: dict[str, bytes],
        resolve: Resolver,
        limit: PayloadLimit,
        guarded: Callable[[], Guarded],
    ) -> None:
        self.loop = loop
        self.payloads = payloads
        self.resolve = resolve
        self.limit = limit
        self.guarded = guarded
        self.output = TurnOutput()
        """The output of this turn."""
        self.inputs = 0
        """How many inputs were applied: what two moments with the same number did is in one commit."""
        self.replaying = False
        self.is_preview = False
        """Inputs are applied whose effects are never committed. In contrast to a replay, the history does not have
        these inputs: the code decides on them now, as in a turn."""
        self.needs_turn: bool | None = None
        """None until a preview begins. True: it met a side effect, whose value only a committed turn decides."""
        self.is_tainted = False
        """Read-only code or a failed preview has changed the run, so that it differs from its replay."""
        self.errors: tuple[BaseException, ...] = ()
        """The errors with which the code, or the handler of an update, failed since the last input."""

    def data_of(self, payload: Payload) -> bytes:
        """The content of a payload, stored in place or by reference."""
        return self.payloads[payload.reference] if payload.reference else bytes(payload.data)

    def exception_of(self, failure: Payload) -> Exception:
        """A recorded failure as an exception."""
        return to_exception(_decode_failure(self.data_of(failure)), self.resolve)

    def checked(self, data: bytes, what: str, value: object = None) -> bytes:
        """`data`, the encoded `value`, unless it is above the payload limit of this execution."""
        limit = self.limit
        if (self.replaying or self.is_preview) and limit.size_of(data, value) <= limit.largest_bytes:
            return data  # the turn that stores it logs the warning
        return limit.checked(data, what, LIMIT_IS_FIXED, value=value)

    @property
    def is_silent(self) -> bool:
        """Whether log lines are dropped: another turn writes them, or the code is being torn down."""
        return self.replaying or self.is_preview or self.loop.is_closed()

    def log(self, level: int, message: str, *arguments: object) -> None:
        """Log a line of the engine about this run (see `add_line`)."""
        self.add_line(LogLine(level, message, arguments, {}))

    def add_line(self, line: LogLine) -> None:
        """Log a line once: with the commit of this turn, and not in a replay or a preview."""
        if self.loop.is_closed():
            raise Evicted
        if not self.is_silent:
            self.output.ensure_effects().logs.append(line)
