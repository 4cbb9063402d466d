"""Which instances are deleted: the rules of a workflow, and the verdict on a family (R30-R33).

A family is a root, which no instance has started, and all its descendants. It is deleted as a whole or not at all.
"""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Final, NamedTuple

from holdfast.core.lifecycle import INSTANCE_FINAL, InstanceState

KEEP: Final = "keep"
"""The attribute that keeps a family: ``hf.attributes["keep"] = True`` (R33)."""


class StateRule(NamedTuple):
    """When instances of one workflow in one final state are deleted. Both conditions have to hold."""

    age_ms: int
    """The youngest end of the family is at least so long ago."""
    keep_last: int = 0
    """It is not among so many of the newest, by their starts."""


class DeletionRules(NamedTuple):
    """The rules of one workflow."""

    by_state: Mapping[InstanceState, StateRule]
    """States that are not named are kept."""
    executions_ms: int | None = None
    """Executions that ended by continue-as-new are deleted at this age, while their instance is open (R34)."""

    @property
    def keeps_all(self) -> bool:
        return not self.by_state and self.executions_ms is None


class FamilyMember(NamedTuple):
    """A member of a family, as a store reads it in the transaction that decides."""

    root: int
    """The number of the root by which the family was named."""
    number: int
    id: str
    workflow: str
    state: InstanceState
    closed_at_ms: int | None
    parent: int | None
    parent_id: str | None
    """The id of the parent; None if there is no such instance."""
    is_held: bool


class FamilyVerdict(StrEnum):
    """What is done with a family."""

    DELETED = "deleted"
    UNKNOWN = "unknown"
    """No instance has the number: the family was deleted before."""
    CHILD = "child"
    """The instance has a parent, and is deleted with it."""
    OPEN = "open"
    """A member is open."""
    HELD = "held"
    """A member has the attribute `keep` (R33)."""
    TOO_YOUNG = "too young"
    """A member ended later than the rule says."""
    LATER = "later"
    """The slice is full."""


class FamilyDecision(NamedTuple):
    """The verdict on one family, and the member that is the reason."""

    root: int
    verdict: FamilyVerdict
    instances: int = 0
    """The members that are deleted."""
    witness: str = ""
    """The id of the parent, or of the member that is open, held or too young."""


def decide_family(root: int, members: Sequence[FamilyMember], ended_by_ms: int | None) -> FamilyDecision:
    """R31: whether a family is deleted. `ended_by_ms` is the latest allowed end of a member; None: any."""
    own = next((member for member in members if member.number == root), None)
    if own is None:
        return FamilyDecision(root, FamilyVerdict.UNKNOWN)
    if own.parent_id is not None:
        return FamilyDecision(root, FamilyVerdict.CHILD, witness=own.parent_id)
    for member in members:
        if member.state not in INSTANCE_FINAL or member.closed_at_ms is None:
            return FamilyDecision(root, FamilyVerdict.OPEN, witness=member.id)
    for member in members:
        if member.is_held:
            return FamilyDecision(root, FamilyVerdict.HELD, witness=member.id)
    for member in members:
        if ended_by_ms is not None and member.closed_at_ms is not None and member.closed_at_ms > ended_by_ms:
            return FamilyDecision(root, FamilyVerdict.TOO_YOUNG, witness=member.id)
    return FamilyDecision(root, FamilyVerdict.DELETED, instances=len(members))


def decide_families(
    roots: Sequence[int], members: Sequence[FamilyMember], *, ended_by_ms: int | None, limit: int
) -> list[FamilyDecision]:
    """R31, R32: the verdicts on several families, at most `limit` members in all. The first one may be larger."""
    families: dict[int, list[FamilyMember]] = {root: [] for root in roots}
    for member in members:
        families[member.root].append(member)
    decisions: list[FamilyDecision] = []
    left = limit
    for root, family in families.items():
        decision = decide_family(root, family, ended_by_ms)
        if decision.instances > left and left < limit:
            decision = FamilyDecision(root, FamilyVerdict.LATER)
        left -= decision.instances
        decisions.append(decision)
    return decisions


def ended_executions(starts: Mapping[int, int], current: int, ended_by_ms: int | None) -> int:
    """R34: the first execution that is kept of a continued instance.

    `starts` are the times at which executions began. An execution ended when the next one began.
    """
    first = current
    while first > 1 and (first not in starts or (ended_by_ms is not None and starts[first] > ended_by_ms)):
        first -= 1
    return first
