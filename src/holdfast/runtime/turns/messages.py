"""Events that are raised in the process which has their instance live: they ride with the turn that takes them (G6).

Such an event and its turn are one commit, and its sender is told after that one. It goes to the store alone, into the
inbox, where no turn can take it along: its instance is not live here, nobody waits for the event, or it has an id that
only the store can know.

Order (G10): an event never overtakes one that was raised before it. What others left in the inbox is taken in first;
one that is behind another which goes alone goes alone, too; and all for live instances wait here in one line.
"""

from collections import deque
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, NamedTuple

from holdfast.background import BackgroundTask, Duty
from holdfast.core.history import EventReceived
from holdfast.runtime.committer import Committer, Done
from holdfast.runtime.turns.live_instance import LiveInstance, Message, UnstoredEvent
from holdfast.runtime.turns.turn_taker import TurnTaker
from holdfast.storage.members.messages import Deliver
from holdfast.storage.members.outcomes import Outcome

if TYPE_CHECKING:
    from holdfast.storage.records import InstanceId


class _QueuedEvent(NamedTuple):
    """A message in the line. `alone`: one before it was on its way to the store when it came."""

    message: Deliver
    done: Done
    alone: bool


class LocalEvents:
    """Brings messages of this process to their instances. `take_messages` takes in what others left for them."""

    def __init__(
        self, committer: Committer, instances: TurnTaker, take_messages: Callable[[], Awaitable[None]]
    ) -> None:
        self._committer = committer
        self._instances = instances
        self._take_messages = take_messages
        self._line: deque[_QueuedEvent] = deque()
        self._handing = BackgroundTask(Duty.EVENTS, self._hand_over)
        self._alone: dict[InstanceId, int] = {}
        """How many messages for an id are on their way to the store alone."""

    def send(self, message: Deliver, done: Done) -> None:
        """Bring a message on its way. `done` hears `Applied` if it was taken by a turn, else what the store says."""
        if not self._line and not self._may_ride(message):
            self._send_alone(message, done)
            return
        self._line.append(_QueuedEvent(message, done, message.id in self._alone))
        self._handing.start()

    def _may_ride(self, message: Deliver) -> bool:
        """Whether a turn here would take it along now."""
        event, live = message.event, self._instances.live.find(message.id, message.number)
        if live is None or type(event) is not EventReceived or message.message_id:
            return False
        return live.run.awaits_event(event.name)

    async def drain(self) -> None:
        """Wait until nothing is left in the line."""
        await self._handing.wait()

    async def _hand_over(self) -> None:
        """A message stays in the line until it is on its way, so that a restart of this task finds it."""
        while count := len(self._line):  # what comes while others' messages are read needs another look
            try:
                await self._take_messages()
            except Exception as error:  # noqa: BLE001 - what was sent before them is not known; the store orders them
                self._committer.trouble.log("events go to the store alone, as their inboxes could not be read", error)
                self._bring(count, rides=False)
            else:
                self._bring(count, rides=True)

    def _bring(self, count: int, *, rides: bool) -> None:
        told: list[LiveInstance] = []
        for _ in range(count):
            message, done, behind = self._line.popleft()
            event, live = message.event, self._instances.live.find(message.id, message.number)
            is_plain = type(event) is EventReceived and not message.message_id
            if live is None or not is_plain or not rides or behind or message.id in self._alone:
                self._send_alone(message, done)
            else:
                live.queue.append(Message(event, response=UnstoredEvent(message, done, self._send_alone)))
                told.append(live)
        self._instances.take_turns(told)

    def _send_alone(self, message: Deliver, done: Done) -> None:
        alone, instance_id = self._alone, message.id

        def decided(outcome: Outcome) -> None:
            alone[instance_id] -= 1
            if not alone[instance_id]:
                del alone[instance_id]
            done(outcome)

        alone[instance_id] = alone.get(instance_id, 0) + 1
        self._committer.submit(message, decided)
