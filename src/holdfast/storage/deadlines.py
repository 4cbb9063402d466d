"""Members about the deadlines of instances."""

from holdfast.core.deadlines import Deadline
from holdfast.core.liveness import WorkerKey
from holdfast.storage.records import InstanceNumber, Record


class SetDeadline(Record, frozen=True):
    """Whoever is about to run an instance for the first time says what its code says, unless its start said it."""

    number: InstanceNumber
    owner: WorkerKey
    deadline: Deadline


class Expire(Record, frozen=True):
    """The deadline of an instance, or the grace after it, has passed (C1): in nobody's name, guarded by the time."""

    number: InstanceNumber
