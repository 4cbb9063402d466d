"""Wake-ups: which processes a commit concerns, and why.

A commit wakes the workers that can claim what it made claimable, the owners of instances that got a message, and the
processes that wait for an instance which it ended. No other process reads the store because of it.

A process that waits for an instance writes its name into the instance's own row (`Watch`, `Start.watcher`). The commit
that ends the instance changes the same row, so one of the two sees the other: either the end finds the name, or the
process finds the end. A wake-up itself may be lost; receivers also poll, about once a second.

While a group is applied, its transaction collects the instances and queues that are concerned (`WakeupTargets`). At the
end one read of these instances tells owners, workflows and watchers, and `resolve` makes the `Wakeups` of the group.
"""

from collections.abc import Callable, Iterable
from typing import Any, Final

import msgspec

from holdfast.core.leases import WorkerKey
from holdfast.storage.records import InstanceNumber, Record

SOON_MS: Final = 1_000
"""An instance that becomes claimable within this time is announced. Polls find the others."""
EVERY_CHANGE: Final = "+"
"""Precedes the name of a process that a commit wakes for answers and state values too, and not only for the end."""
MOST_NAMES: Final = 20
"""With more queues, workflows and owners in a wake-up, all processes poll for everything."""
MOST_INSTANCES: Final = 200
"""With more instances in a wake-up for one process, it polls for everything it waits for."""


class Wakeup(Record, frozen=True, omit_defaults=True, rename={"everything": "all"}):
    """The content of a wake-up for a process."""

    queues: frozenset[str] = frozenset()
    """Queues with attempts that are READY."""
    workflows: frozenset[str] = frozenset()
    """Workflows with instances that are claimable."""
    claimants: frozenset[str] = frozenset()
    """Workers that poll for these instances at once; the others poll a moment later. Empty: all poll at once."""
    owners: frozenset[str] = frozenset()
    """Workers with messages for their instances."""
    queries: frozenset[str] = frozenset()
    """Workers and workflows with queries for their instances."""
    instances: frozenset[InstanceNumber] = frozenset()
    """Instances for which the receiver waits, and which have ended, are blocked or have news."""
    replies: bool = False
    """A query of the receiver was answered."""
    everything: bool = False
    """The receiver polls for everything."""

    def __bool__(self) -> bool:
        names = self.queues or self.workflows or self.owners or self.queries
        return bool(names or self.instances or self.replies or self.everything)

    def __or__(self, other: "Wakeup") -> "Wakeup":
        return Wakeup(
            queues=self.queues | other.queues,
            workflows=self.workflows | other.workflows,
            claimants=self._claimants_with(other),
            owners=self.owners | other.owners,
            queries=self.queries | other.queries,
            instances=self.instances | other.instances,
            replies=self.replies or other.replies,
            everything=self.everything or other.everything,
        )

    def bounded(self) -> "Wakeup":
        """The same, or a wake-up for everything if it has too many names."""
        names = sum(map(len, (self.queues, self.workflows, self.owners, self.queries)))
        return EVERYTHING if names > MOST_NAMES or len(self.instances) > MOST_INSTANCES else self

    def _claimants_with(self, other: "Wakeup") -> frozenset[str]:
        """None if one of the two is for all workers, or if there are too many."""
        if any(each.workflows and not each.claimants for each in (self, other)):
            return frozenset()
        claimants = self.claimants | other.claimants
        return claimants if len(claimants) <= MOST_NAMES else frozenset()


EVERYTHING: Final = Wakeup(everything=True)
NOTHING: Final = Wakeup()


class Wakeups(Record, frozen=True):
    """The wake-ups of a commit: one for all processes, and one for each process that waits for an instance."""

    to_all: Wakeup = NOTHING
    to_each: dict[str, Wakeup] = msgspec.field(default_factory=dict[str, Wakeup])
    """By the name of the process."""

    def __bool__(self) -> bool:
        return bool(self.to_all or self.to_each)

    def __or__(self, other: "Wakeups") -> "Wakeups":
        if not other:
            return self
        if not self:
            return other
        names = self.to_each.keys() | other.to_each.keys()
        to_each = {name: self.to_each.get(name, NOTHING) | other.to_each.get(name, NOTHING) for name in names}
        return Wakeups(to_all=self.to_all | other.to_all, to_each=to_each)

    def without(self, name: str, worker: WorkerKey | None) -> "Wakeups":
        """The wake-ups that remain for other processes than that of this name and worker."""
        to_all = self.to_all
        if worker is not None and (worker in to_all.owners or worker in to_all.queries):
            to_all = msgspec.structs.replace(to_all, owners=to_all.owners - {worker}, queries=to_all.queries - {worker})
        if name in self.to_each:
            return Wakeups(
                to_all=to_all, to_each={each: wakeup for each, wakeup in self.to_each.items() if each != name}
            )
        return self if to_all is self.to_all else Wakeups(to_all=to_all, to_each=self.to_each)


Notify = Callable[[Wakeups], None]
"""Receives the wake-ups of a group that is on disk."""


Heard = Callable[[Wakeup], None]
"""Receives a wake-up that another process has sent."""


def ignore_wakeups(_: Wakeups) -> None:
    """Receive wake-ups that the caller does not send."""


_decoder: Final = msgspec.json.Decoder(Wakeup)


def encode_wakeup(wakeup: Wakeup) -> bytes:
    """The stored form of a wake-up, in a notification."""
    return msgspec.json.encode(wakeup, order="deterministic")


def decode_wakeup(data: bytes) -> Wakeup:
    """The wake-up of a notification. Releases before this one send no content: theirs is for everything."""
    try:
        return _decoder.decode(data)
    except msgspec.MsgspecError:
        return EVERYTHING


class WakeupTargets:
    """The instances and queues whose changes concern other processes, collected while members are applied."""

    __slots__ = ("askers", "everything", "instances", "queries", "queues")

    def __init__(self) -> None:
        self.instances: set[int] = set()
        """Instances that ended, got a message, became claimable or have news."""
        self.queues: set[str] = set()
        """Queues with a new READY attempt."""
        self.queries: set[str] = set()
        """Owners of instances with a new query; of one without an owner the workflow."""
        self.askers: set[str] = set()
        """Processes whose query was answered."""
        self.everything = False

    def numbers(self) -> list[int]:
        """The instances to be read for `resolve`, in ascending order."""
        return sorted(self.instances)

    def is_empty(self) -> bool:
        """Whether nothing was collected, so that no other process is concerned."""
        return not (self.instances or self.queues or self.queries or self.askers or self.everything)

    def resolve(self, rows: Iterable[tuple[Any, ...]], now_ms: int) -> Wakeups:
        """The wake-ups, from the rows of `wakeup_targets.sql` for `numbers`."""
        workflows: set[str] = set()
        owners: set[str] = set()
        to_each: dict[str, set[InstanceNumber]] = {asker: set() for asker in self.askers}
        for number, workflow, owner, claimable_at_ms, is_over, watchers in rows:
            if owner is not None:
                owners.add(owner)
            elif claimable_at_ms is not None and claimable_at_ms <= now_ms + SOON_MS:
                workflows.add(workflow)
            for watcher in watchers.split() if watchers else ():
                name = watcher.removeprefix(EVERY_CHANGE)
                if is_over or name != watcher:
                    to_each.setdefault(name, set()).add(number)
        to_all = Wakeup(
            queues=frozenset(self.queues),
            workflows=frozenset(workflows),
            owners=frozenset(owners),
            queries=frozenset(self.queries),
            everything=self.everything,
        )
        return Wakeups(
            to_all=to_all.bounded(),
            to_each={
                name: Wakeup(instances=frozenset(found), replies=name in self.askers).bounded()
                for name, found in to_each.items()
            },
        )
