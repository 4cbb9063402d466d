"""What a turn says about children, and what a store tells about them."""

from typing import NamedTuple

from holdfast.core.children import ParentClose
from holdfast.core.deadlines import Deadline
from holdfast.core.lifecycle import InstanceState
from holdfast.storage.records import InstanceId, InstanceNumber, LargePayload, Record


class NewChild(Record, frozen=True):
    """An instance to be created with the turn of its parent, tied to the step `child` of that execution (G11)."""

    child: int
    id: InstanceId
    workflow: str
    version: str
    input: bytes
    input_hash: bytes
    started: bytes
    parent_close: ParentClose
    named: bool = False
    """The code chose the id, and waits to hear that it was free."""
    payloads: tuple[LargePayload, ...] = ()
    deadline: Deadline | None = None


class CancelChild(Record, frozen=True):
    """A child that its parent's turn asks to end."""

    child: int
    reason: str = ""
    descendants: bool = False


class CloseChildren(Record, frozen=True):
    """Go on with the children of an execution that has ended: a batch of what its own commit left to others (C1)."""

    number: InstanceNumber
    execution: int
    limit: int


class EndedInstance(NamedTuple):
    """An instance that came to its end by something that happened to another."""

    id: InstanceId
    number: InstanceNumber


class Parent(Record, frozen=True):
    """Who started an instance."""

    id: InstanceId
    number: InstanceNumber
    execution: int
    child: int


class ParentAndChildren(Record, frozen=True, gc=True):
    """The parent of an instance, if it has one, and how many children are in which state."""

    parent: Parent | None
    children: dict[InstanceState, int]
