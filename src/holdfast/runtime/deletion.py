"""Finds the families and the executions that are kept no longer, and deletes them in slices (R31-R34).

A walk reads roots in the order of their starts, a page at a time, and deletes each page in one commit or more. Nothing
is remembered between two walks: a walk that was interrupted is repeated, and finds what is left.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from typing import Final, NamedTuple

from holdfast.core.filters import CLOSED, And, Comparison, Field, Filter, In, Instant, IsNull, Operator
from holdfast.core.lifecycle import InstanceState
from holdfast.core.retention import FamilyDecision, FamilyVerdict
from holdfast.errors import StoreError
from holdfast.runtime.platform import FaultPoint
from holdfast.runtime.session import StoreSession
from holdfast.storage.contract import RetentionStore
from holdfast.storage.members.member import Member
from holdfast.storage.members.outcomes import DeletedExecutions, DeletedFamilies, Failed, Outcome
from holdfast.storage.members.retention import EXECUTION_SLICE, FAMILY_SLICE, DeleteExecutions, DeleteFamilies
from holdfast.storage.records import CommitId, InstanceNumber
from holdfast.storage.search import FoundInstance, PageOrder, Position, SearchQuery

Commit = Callable[[Member], Awaitable[Outcome]]
"""Commits one member and returns its outcome."""
ROOTS: Final = 4 * FAMILY_SLICE
"""Roots of one page: each read is a wait for the store, and for the interpreter beside busy code."""
OLDEST_FIRST: Final = PageOrder(is_ascending=True)
MICROSECONDS: Final = 1_000


def committing(session: StoreSession) -> Commit:
    """Commits deletions beside the groups of the worker and the client, so that no turn waits for a slice.

    An error may come after the commit. The caller repeats the deletion, which then finds nothing.
    """
    hook = session.platform.fault_hook

    async def commit(member: Member) -> Outcome:
        commit_id = CommitId(session.platform.providers.commit_id())
        if hook is not None:
            hook(FaultPoint.BEFORE_COMMIT, [member])
        [outcome] = await session.store.commit(commit_id, [member], session.wake_others)
        if hook is not None:
            hook(FaultPoint.AFTER_COMMIT, [member])
        return outcome

    return commit


class Selection(NamedTuple):
    """The roots of a walk: all conditions have to hold."""

    states: tuple[InstanceState, ...]
    ended_by_ms: int
    """Every member ended at this time or before."""
    workflow: str | None = None
    filter: Filter | None = None
    """A test of the root, without relative times."""
    keep_last: int = 0
    """Of each workflow and state, so many of the newest roots are left out."""


Group = tuple[str, InstanceState]
"""A workflow and a state."""


async def selected_roots(
    store: RetentionStore, selection: Selection, *, limit: int = ROOTS
) -> AsyncGenerator[list[FoundInstance]]:
    """Pages of the roots that a rule selects by themselves, oldest first. The store decides about their families."""
    newest: dict[Group, Position | None] = {}
    query = SearchQuery(filter=_filter(selection), order=OLDEST_FIRST, limit=limit)
    while True:
        page = await store.search(query)
        roots: list[FoundInstance] = []
        for each in page:
            if selection.keep_last:
                group = each.instance.workflow, each.instance.state
                if group not in newest:
                    newest[group] = await _first_kept(store, selection, group)
                kept_from = newest[group]
                if kept_from is None or _place(each.position) >= _place(kept_from):
                    continue
            roots.append(each)
        if roots:
            yield roots
        if len(page) < limit:
            return
        query = SearchQuery(filter=query.filter, order=OLDEST_FIRST, after=page[-1].position, limit=limit)


def _place(position: Position) -> tuple[int, int]:
    return position.key, position.number


async def _first_kept(store: RetentionStore, selection: Selection, group: Group) -> Position | None:
    """The oldest of the newest roots of a group that are kept; None if there are no older ones."""
    workflow, state = group
    found = _all(
        Comparison(Field("workflow"), Operator.EQUAL, workflow),
        Comparison(Field("state"), Operator.EQUAL, state.value),
        IsNull(Field("parent")),
        selection.filter,
    )
    left = selection.keep_last
    after: Position | None = None
    while left:
        page = await store.search(SearchQuery(filter=found, after=after, limit=min(left, FAMILY_SLICE)))
        left -= len(page)
        if not page or (left and len(page) < FAMILY_SLICE):
            return None
        after = page[-1].position
    return after


def _filter(selection: Selection) -> Filter:
    workflow = selection.workflow
    return _all(
        None if workflow is None else Comparison(Field("workflow"), Operator.EQUAL, workflow),
        In(Field("state"), tuple(state.value for state in selection.states)),
        Comparison(CLOSED, Operator.AT_MOST, Instant(selection.ended_by_ms * MICROSECONDS)),
        IsNull(Field("parent")),
        selection.filter,
    )


def _all(*parts: Filter | None) -> Filter:
    return And(tuple(part for part in parts if part is not None))


async def delete_families(
    commit: Commit, roots: Sequence[InstanceNumber], ended_by_ms: int | None
) -> AsyncGenerator[Sequence[FamilyDecision]]:
    """Delete the families of roots, in one commit or more. Yields the decisions of each commit."""
    left: list[InstanceNumber] = list(roots)
    while left:
        named = tuple(left[:FAMILY_SLICE])
        outcome = _checked(await commit(DeleteFamilies(roots=named, ended_by_ms=ended_by_ms)))
        if not isinstance(outcome, DeletedFamilies):
            raise StoreError(f"the deletion of {len(named)} families had the outcome {outcome!r}")
        decided = [each for each in outcome.decisions if each.verdict is not FamilyVerdict.LATER]
        yield decided
        gone = {each.root for each in decided}
        left = [root for root in left if root not in gone]


async def continued(store: RetentionStore) -> AsyncGenerator[list[tuple[InstanceNumber, str]]]:
    """Pages of the open instances that have earlier executions, each with its workflow."""
    after = InstanceNumber(0)
    while True:
        page = await store.continued_instances(after=after, limit=FAMILY_SLICE)
        for at in range(0, len(page), EXECUTION_SLICE):
            yield page[at : at + EXECUTION_SLICE]
        if len(page) < FAMILY_SLICE:
            return
        after = page[-1][0]


async def delete_executions(commit: Commit, numbers: Sequence[InstanceNumber], ended_by_ms: int) -> int:
    """Delete executions of open instances that ended by continue-as-new. Returns their number."""
    outcome = _checked(await commit(DeleteExecutions(numbers=tuple(numbers), ended_by_ms=ended_by_ms)))
    if not isinstance(outcome, DeletedExecutions):
        raise StoreError(f"the deletion of executions had the outcome {outcome!r}")
    return sum(outcome.executions.values())


def _checked(outcome: Outcome) -> Outcome:
    if isinstance(outcome, Failed):
        if isinstance(outcome.error, StoreError):
            raise outcome.error
        raise StoreError(f"the store could not delete instances: {outcome.error}") from outcome.error
    return outcome
