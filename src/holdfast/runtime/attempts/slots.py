"""Slots of a worker: how many activities run here at once, and which new attempt starts here without a claim.

A slot is reserved before its attempt is committed as RUNNING. An attempt that the turn which schedules it may start
here at once (eager dispatch) never overtakes attempts that wait in the store: while there is a backlog every attempt
goes through a claim.
"""

import logging

import msgspec

from holdfast.authoring.registry import Registry
from holdfast.core.activity_options import decode_options, with_trace
from holdfast.core.run import ScheduledActivity
from holdfast.runtime.signals import PollSignal

logger = logging.getLogger("holdfast")


class ActivitySlots:
    """The slots of one worker."""

    def __init__(self, registry: Registry, queues: tuple[str, ...], count: int, work: PollSignal) -> None:
        self._registry = registry
        self._queues = queues
        self._work = work
        self._is_closed = False
        self._warned: set[str] = set()
        self.count = count
        self.free = count
        self.has_backlog = False
        """Attempts that this worker could run had no free slot at the last poll."""
        self._has_arrival = False

    def reserve_for(self, scheduled: ScheduledActivity) -> bool:
        """Reserve a slot for a new attempt if it may start here at once."""
        queue = scheduled.options.queue
        if queue not in self._queues or scheduled.options.external is not None:
            return False
        if scheduled.name not in self._registry.activities:
            self._warn_unregistered(scheduled.name, queue)
            return False
        if self.has_backlog or self._is_closed:
            return False
        if self.free <= 0:
            self.has_backlog = True
            return False
        self.free -= 1
        return True

    def stand_in_of(self, scheduled: ScheduledActivity) -> ScheduledActivity:
        """The call of an external activity, or an ordinary one if a test has given it a body here."""
        registered = self._registry.activities.get(scheduled.name)
        if registered is None or registered.options.external is not None:
            return scheduled
        encoded = registered.encoded_options
        if trace := decode_options(scheduled.encoded_options).trace:
            encoded = with_trace(encoded, trace)
        return msgspec.structs.replace(scheduled, options=registered.options, encoded_options=encoded)

    def reserve(self, most: int) -> int:
        """Reserve free slots, at most `most`, and return how many."""
        count = min(self.free, most)
        self.free -= count
        return count

    def release(self, count: int = 1) -> None:
        """Return slots. The claimer polls for the backlog that waits for them."""
        if count == 0:
            return
        self.free += count
        if self.has_backlog and not self._is_closed:
            self._work.set()

    def begin_poll(self) -> None:
        """A poll is about to read what is due."""
        self._has_arrival = False

    def note_backlog(self, *, has_backlog: bool) -> None:
        """A poll has found whether attempts wait for a slot here. It may not have seen those that came meanwhile."""
        self.has_backlog = has_backlog or self._has_arrival

    def note_arrival(self) -> None:
        """Attempts have become READY while no slot is free: the next free slot polls."""
        self.has_backlog = self._has_arrival = True

    def close(self) -> None:
        """Start nothing more at once: the worker drains or stops."""
        self._is_closed = True

    def _warn_unregistered(self, name: str, queue: str) -> None:
        if name in self._warned or self._is_closed:
            return
        self._warned.add(name)
        logger.warning(
            "no activity %r is registered here, though its queue %r is served: it waits for a worker that has it. "
            "Was it left out of modules= or activities=?",
            name,
            queue,
        )
