"""Deletes closed instances on request: one family by its id, or all that a rule selects (R31-R35)."""

import hashlib
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from holdfast.authoring.retention import Age, checked_age_ms
from holdfast.authoring.validation import checked_integer, checked_name
from holdfast.client.archive import ArchiveWriter
from holdfast.core.checks import parse_enum
from holdfast.core.filters import at, parse
from holdfast.core.lifecycle import INSTANCE_FINAL, InstanceState
from holdfast.core.retention import KEEP, FamilyDecision, FamilyMember, FamilyVerdict, decide_families
from holdfast.errors import FamilyKept, FamilyOpen, InstanceNotFound, InvalidOption, NotARoot, StoreError, UsageError
from holdfast.runtime.deletion import (
    ROOTS,
    Commit,
    Selection,
    continued,
    delete_executions,
    delete_families,
    selected_roots,
)
from holdfast.storage.contract import RetentionStore
from holdfast.storage.records import InstanceId, InstanceNumber

StateNames = str | InstanceState | Sequence[str | InstanceState]
PruneProgress = Callable[[int], None]
"""Receives the number of instances that were deleted, or would be."""

STEP_BYTES: Final = 2**20
"""Space that one step returns to the file system."""
ARCHIVE_SLICE: Final = 200
"""Families of one slice of an archive, whose lines are in memory together."""
STORE_DIGITS: Final = 16


class PrunedGroup(msgspec.Struct, frozen=True, kw_only=True):
    """The deleted families whose roots are of one workflow and ended in one state."""

    workflow: str
    state: str
    families: int
    instances: int


class PruneReport(msgspec.Struct, frozen=True, kw_only=True):
    """What `prune` has deleted, or would delete."""

    dry_run: bool
    families: int
    instances: int
    executions: int
    """Executions of open instances that ended by continue-as-new. A dry run does not count them."""
    groups: list[PrunedGroup]
    kept: dict[str, int]
    """Families that the rule selects by their root and that are kept: `open`, `held`, `too young`."""
    archived: int
    """Instances that were written to the archive."""
    bytes_returned: int
    """Space that was returned to the file system."""


class PruneRule(NamedTuple):
    """The checked arguments of `prune`."""

    selection: Selection
    executions_by_ms: int | None
    """The latest end of executions that are deleted; None: none are."""


async def delete_family(store: RetentionStore, commit: Commit, instance_id: InstanceId) -> int:
    """See `Client.delete`."""
    record = await store.find_instance(instance_id)
    if record is None:
        raise InstanceNotFound(f"no instance has the id {instance_id!r}")
    async for decisions in delete_families(commit, [record.number], None):
        for decision in decisions:
            if decision.verdict is FamilyVerdict.DELETED:
                return decision.instances
            raise _refusal(instance_id, decision)
    raise StoreError(f"the deletion of {instance_id!r} had no outcome")


def _refusal(instance_id: str, decision: FamilyDecision) -> Exception:
    witness = decision.witness
    match decision.verdict:
        case FamilyVerdict.CHILD:
            return NotARoot(
                f"{instance_id!r} is a child of {witness!r} and is deleted with the root of its family; nothing was "
                "deleted"
            )
        case FamilyVerdict.OPEN:
            which = "it" if witness == instance_id else f"its descendant {witness!r}"
            return FamilyOpen(
                f"{instance_id!r} cannot be deleted while {which} is open; nothing was deleted. Wait for its end, or "
                "cancel or terminate it"
            )
        case FamilyVerdict.HELD:
            return FamilyKept(f"{instance_id!r} is kept by the attribute {KEEP!r} of {witness!r}; nothing was deleted")
        case _:
            return InstanceNotFound(f"no instance has the id {instance_id!r}; another call has deleted it")


def prune_rule(
    now_ms: int,
    *,
    filter: str | None,  # noqa: A002 - the name of the public argument
    older_than: Age | None,
    state: StateNames | None,
    workflow: str | None,
    keep_last: int | None,
) -> PruneRule:
    """The rule of a prune. `UsageError` without any condition, which would delete every closed instance."""
    if filter is None and older_than is None and state is None and workflow is None and keep_last is None:
        raise UsageError(
            "prune needs a rule: older_than='30d', a state, a workflow, keep_last=N or a filter; "
            "older_than=0 deletes every closed instance"
        )
    age_ms = 0 if older_than is None else checked_age_ms(older_than, "older_than")
    found = None if filter is None else at(parse(filter), now_ms)
    if workflow is not None:
        checked_name(workflow, "a workflow")
    selection = Selection(
        states=_states(state),
        ended_by_ms=now_ms - age_ms,
        workflow=workflow,
        filter=found,
        keep_last=0 if keep_last is None else checked_integer(keep_last, "keep_last", least=0),
    )
    with_executions = older_than is not None and filter is None and state is None
    return PruneRule(selection, selection.ended_by_ms if with_executions else None)


def _states(state: StateNames | None) -> tuple[InstanceState, ...]:
    if state is None:
        return tuple(sorted(INSTANCE_FINAL))
    given = [state] if isinstance(state, str) else list(state)
    states = tuple(parse_enum(InstanceState, each.upper(), "state of an instance") for each in given)
    for each in states:
        if each not in INSTANCE_FINAL:
            raise InvalidOption(
                f"{each} is the state of an open instance, which is not deleted; closed ones are "
                f"{', '.join(sorted(INSTANCE_FINAL))}"
            )
    if not states:
        raise InvalidOption("state names no state")
    return states


Groups = dict[int, tuple[str, str]]
"""The workflow and the state of each root."""


class _PruneTally:
    """Counts what is deleted, by the workflow and the state of the root."""

    def __init__(self, progress: PruneProgress | None) -> None:
        self._progress = progress
        self._families: Counter[tuple[str, str]] = Counter()
        self._instances: Counter[tuple[str, str]] = Counter()
        self._kept: Counter[str] = Counter()

    def add(self, decisions: Sequence[FamilyDecision], groups: Groups) -> None:
        for decision in decisions:
            group = groups[decision.root]
            if decision.verdict is FamilyVerdict.DELETED:
                self._families[group] += 1
                self._instances[group] += decision.instances
            elif decision.verdict in (FamilyVerdict.OPEN, FamilyVerdict.HELD, FamilyVerdict.TOO_YOUNG):
                self._kept[decision.verdict.value] += 1
        if self._progress is not None:
            self._progress(self._instances.total())

    def report(self, *, dry_run: bool, executions: int, archived: int, returned: int) -> PruneReport:
        return PruneReport(
            dry_run=dry_run,
            families=self._families.total(),
            instances=self._instances.total(),
            executions=executions,
            groups=[
                PrunedGroup(workflow=group[0], state=group[1], families=count, instances=self._instances[group])
                for group, count in sorted(self._families.items())
            ],
            kept=dict(sorted(self._kept.items())),
            archived=archived,
            bytes_returned=returned,
        )


async def plan_prune(store: RetentionStore, rule: PruneRule, *, progress: PruneProgress | None = None) -> PruneReport:
    """What a prune would delete. Nothing is changed."""
    tally = _PruneTally(progress)
    async for page in selected_roots(store, rule.selection):
        roots = [each.instance.number for each in page]
        decisions = _decided(roots, await store.read_families(roots), rule.selection.ended_by_ms)
        tally.add(decisions, {each.instance.number: (each.instance.workflow, each.instance.state) for each in page})
    return tally.report(dry_run=True, executions=0, archived=0, returned=0)


def _decided(roots: Sequence[int], members: Sequence[FamilyMember], ended_by_ms: int) -> list[FamilyDecision]:
    return decide_families(roots, members, ended_by_ms=ended_by_ms, limit=len(members) + 1)


async def prune(
    store: RetentionStore,
    commit: Commit,
    rule: PruneRule,
    *,
    archive: str | Path | None = None,
    progress: PruneProgress | None = None,
) -> PruneReport:
    """See `Client.prune`."""
    tally = _PruneTally(progress)
    ended_by_ms = rule.selection.ended_by_ms
    archived = 0
    with nullcontext() if archive is None else ArchiveWriter(archive, await store_name(store)) as writer:
        if writer is not None:
            await _settle(store, writer)
        async for page in selected_roots(store, rule.selection, limit=ROOTS if writer is None else ARCHIVE_SLICE):
            roots = [each.instance.number for each in page]
            groups: Groups = {each.instance.number: (each.instance.workflow, each.instance.state) for each in page}
            if writer is None:
                async for decisions in delete_families(commit, roots, ended_by_ms):
                    tally.add(decisions, groups)
            else:
                archiving = _ArchivingPrune(store, commit, writer, ended_by_ms, tally)
                archived += await archiving.delete(roots, groups)
    executions = 0
    if rule.executions_by_ms is not None and archive is None:
        executions = await _prune_executions(store, commit, rule.selection.workflow, rule.executions_by_ms)
    returned = 0
    while step := await store.give_back(STEP_BYTES):
        returned += step
    return tally.report(dry_run=False, executions=executions, archived=archived, returned=returned)


class _ArchivingPrune(NamedTuple):
    """Archives and deletes, a slice at a time."""

    store: RetentionStore
    commit: Commit
    writer: ArchiveWriter
    ended_by_ms: int
    tally: _PruneTally

    async def delete(self, roots: Sequence[InstanceNumber], groups: Groups) -> int:
        """Write a slice of families, then delete those that are in the archive. Returns the number of new lines."""
        from holdfast.client.views.archived import archived_lines  # noqa: PLC0415 - for one option

        pending = self.writer.pending
        members = await self.store.read_families(roots)
        decisions = _decided(roots, members, self.ended_by_ms)
        chosen = {each.root for each in decisions if each.verdict is FamilyVerdict.DELETED}
        self.tally.add([each for each in decisions if each.root not in chosen], groups)
        new = [each for each in members if each.root in chosen and each.number not in pending]
        lines = await archived_lines(self.store, new)
        if lines:
            self.writer.write(lines)
        in_archive = [root for root in roots if root in chosen and root in self.writer.pending]
        async for outcome in delete_families(self.commit, in_archive, self.ended_by_ms):
            self.tally.add(outcome, groups)
        await _settle(self.store, self.writer)
        return len(lines)


async def _settle(store: RetentionStore, writer: ArchiveWriter) -> None:
    """Note the slices of which the store has no instance any more."""
    numbers = sorted(writer.pending)
    there = {each.number for each in await store.read_instances([InstanceNumber(number) for number in numbers])}
    left = {writer.pending[number] for number in numbers if number in there}
    for number in sorted({*writer.pending.values()} - left):
        writer.deleted(number)


async def _prune_executions(store: RetentionStore, commit: Commit, workflow: str | None, ended_by_ms: int) -> int:
    deleted = 0
    async for page in continued(store):
        numbers = [number for number, name in page if workflow in (None, name)]
        if numbers:
            deleted += await delete_executions(commit, numbers, ended_by_ms)
    return deleted


async def store_name(store: RetentionStore) -> str:
    """A name that no other store has, for the manifest of an archive; it tells nothing about the keys of the store."""
    return hashlib.sha256(b"archive of " + await store.read_secret("cursors")).hexdigest()[:STORE_DIGITS]
