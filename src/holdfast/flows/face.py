"""The face of a run, as whoever owns an instance knows it: a flow has the same as workflow code."""

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from holdfast.core.answers import Reply
from holdfast.core.event import Payload
from holdfast.core.events import EventReceived
from holdfast.core.flow.book import FlowState
from holdfast.flows.asking import NoUpdates
from holdfast.flows.compiled import CompiledFlow
from holdfast.flows.values import InstanceValues
from holdfast.payloads.failures import Resolver
from holdfast.payloads.limits import PayloadLimit
from holdfast.replay.calls import ExecutionId
from holdfast.replay.output import LogLine, TurnOutput, with_one_more


class RunFace:
    """What is asked of every run, and what a flow never has."""

    __slots__ = (
        "_payloads",
        "book",
        "depth",
        "flow",
        "identity",
        "is_done",
        "limit",
        "now_ms",
        "output",
        "parent",
        "progress",
        "resolve",
        "seed",
        "values",
        "version",
    )

    mailbox: Final = None
    drops_events: Final = False
    is_ending: Final = False
    is_spoiled: Final = False
    is_end_deferred: Final = False

    def __init__(
        self,
        flow: CompiledFlow,
        identity: ExecutionId,
        resolve: Resolver,
        payloads: dict[str, bytes] | None = None,
        limit: PayloadLimit | None = None,
    ) -> None:
        self.flow, self.identity, self.resolve = flow, identity, resolve
        self.limit = limit or PayloadLimit()
        self.book = book = FlowState(flow.graph, flow.roster)
        self.progress = book.progress
        self._payloads = {} if payloads is None else payloads
        self.values = InstanceValues(flow, identity.instance_id, book, self._payloads)
        self.version, self.parent, self.depth, self.seed, self.now_ms = "", "", 0, 0, 0
        self.output = TurnOutput()
        """What this turn does."""
        self.is_done = False

    @property
    def has_family(self) -> bool:
        """Whether the end of this execution concerns a parent or children."""
        return self.depth > 0 or self.book.next_child > 0

    @property
    def has_open_activities(self) -> bool:
        """Whether activities were still open at the end."""
        besides = self.output.besides
        return bool(self.book.activities) or (besides is not None and bool(besides.abandoned))

    @property
    def waited_for(self) -> tuple[str, ...]:
        """The names of the events that are waited for."""
        return tuple(self.book.waits)

    @property
    def kept(self) -> dict[str, bytes]:
        """A flow keeps nothing besides its books."""
        return {}

    @property
    def updates(self) -> NoUpdates:
        """A flow takes no updates."""
        return NoUpdates(self.answer)

    def waits_for(self, timer: int) -> bool:
        """Whether a timer is still waited for."""
        return timer in self.book.timers

    def waits_for_event(self, name: str) -> bool:
        """Whether an event of this name would reach somebody."""
        return name in self.book.waits

    def misfit(self, event: EventReceived) -> None:
        """A flow takes any value: its expressions read what they need."""

    def values_of(self, activity: int) -> int:
        """A flow takes no values before the last one."""
        del activity
        return -1

    def add_payloads(self, payloads: dict[str, bytes]) -> None:
        """Large payloads that messages still to be applied name by reference."""
        self._payloads.update(payloads)

    def data_of(self, payload: Payload) -> bytes | msgspec.Raw:
        """What a payload holds, wherever it is kept."""
        return self._payloads[payload.reference] if payload.reference else payload.data

    def take_output(self) -> TurnOutput:
        """What was done since the last call."""
        output, self.output = self.output, TurnOutput()
        return output

    def end(self) -> None:
        """Nothing of a flow is deferred: it has no handlers beside its nodes."""

    def evict(self) -> Sequence[str]:
        """Let go. There is no code to tear down."""
        return ()

    def abandon(self) -> None:
        """As `evict`: there is no code to tear down."""

    def log(self, level: int, message: str, *arguments: Any, **extra: Any) -> None:
        """Log a line with this turn's commit."""
        also = self.output.also()
        also.logs = with_one_more(also.logs, LogLine(level, message, arguments, extra))

    def answer(self, update_id: str, answer: Reply | None) -> None:
        """Tell the sender of an update how it went."""
        also = self.output.also()
        if also.answers is None:
            also.answers = {}
        also.answers[update_id] = answer
