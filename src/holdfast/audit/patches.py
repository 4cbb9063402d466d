"""Which branch open instances took at each `hf.patched`, and which calls can be removed (R15).

A patch is safe to remove exactly when every open history replays on code in which its call is replaced by the new
branch. Only an instance that took the old branch can answer otherwise than with the call, so only that one is replayed
a second time, for each such patch.
"""

import dis
import inspect
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import CodeType, FunctionType, ModuleType
from typing import Any, Final

from holdfast.audit.replays import CodeCheck, Outcome, Progress, open_instances
from holdfast.authoring.registry import Registry
from holdfast.authoring.workflow import Workflow
from holdfast.authoring.workflow_api import patched
from holdfast.core.versions import version_text
from holdfast.storage.contract import CheckableStore
from holdfast.storage.records import InstanceRecord, LoadedInstance

MOST_EXAMPLES: Final = 10
MOST_FUNCTIONS: Final = 10_000
MOST_PATCHES: Final = 1_000
"""Patches of one workflow that are counted: names that code makes from values may be many."""


@dataclass(frozen=True, slots=True)
class PatchReport:
    """One patch of one version of a workflow."""

    workflow: str
    version: str
    patch: str
    new: int
    """Open instances that took the new branch."""
    old: int
    """Open instances that had passed the point before the patch."""
    undecided: int
    """Open instances that have not reached the call, in this execution."""
    in_the_way: int
    """Open instances that do not replay without the call."""
    examples: tuple[str, ...]
    """The ids of some of them."""

    @property
    def is_safe(self) -> bool:
        """Whether the call can be replaced by its new branch."""
        return self.in_the_way == 0


@dataclass(slots=True)
class _Tally:
    open: int = 0
    broken: int = 0
    """Instances that do not replay on the code as it is."""
    broken_ids: list[str] = field(default_factory=list[str])
    new: Counter[str] = field(default_factory=Counter[str])
    old: Counter[str] = field(default_factory=Counter[str])
    hindered: Counter[str] = field(default_factory=Counter[str])
    """By patch: instances that replay with the call and not without it."""
    mended: Counter[str] = field(default_factory=Counter[str])
    """By patch: instances that replay without the call only."""
    ids: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    names: set[str] = field(default_factory=set[str])


@dataclass(frozen=True, slots=True)
class PatchesReport:
    """All patches, and what was not counted."""

    patches: tuple[PatchReport, ...]
    broken: dict[str, tuple[int, tuple[str, ...]]]
    """By workflow: open instances that do not replay on this code at all, and the ids of some of them."""
    unknown: dict[str, int]
    """Open instances of workflows that the code does not have."""


async def count_patches(
    store: CheckableStore, registry: Registry, workflow: str | None, progress: Progress
) -> PatchesReport:
    """Replay every open instance of the registered workflows, or of one of them."""
    names = sorted(registry.workflows) if workflow is None else [workflow]
    codes = [registry.workflow(name, version) for name in names for version in registry.versions_of(name)]
    tallies = {code: _Tally(names=names_in(code.fn)) for code in codes if not code.is_flow}
    unknown: Counter[str] = Counter()
    with CodeCheck(store, registry) as check:
        async for record, loaded in open_instances(store, lambda record: check.code_of(record) in tallies, progress):
            code = check.code_of(record)
            if loaded is not None and code is not None:
                await _count(check, tallies[code], record, loaded)
            elif code is None and workflow in (None, record.workflow):
                named = check.has_other_version_of(record)
                unknown[
                    f"{record.workflow} with {version_text(record.version or '')}" if named else record.workflow
                ] += 1
    broken: dict[str, tuple[int, tuple[str, ...]]] = {}
    for code, tally in tallies.items():
        if tally.broken:
            count, ids = broken.get(code.name, (0, ()))
            broken[code.name] = (count + tally.broken, (*ids, *tally.broken_ids)[:MOST_EXAMPLES])
    reports = [report for code, tally in tallies.items() for report in _reports(code, tally)]
    return PatchesReport(tuple(reports), broken, dict(sorted(unknown.items())))


async def _count(check: CodeCheck, tally: _Tally, record: InstanceRecord, loaded: LoadedInstance) -> None:
    outcome = await check.replay(record, loaded)
    tally.open += 1
    if outcome.problem:
        tally.broken += 1
        _add_example(tally.broken_ids, record.id)
    for name, is_new in outcome.patches.items():
        if name not in tally.names and len(tally.names) >= MOST_PATCHES:
            continue
        tally.names.add(name)
        if is_new:
            tally.new[name] += 1
        else:
            tally.old[name] += 1
            _compare(tally, name, record, outcome, await check.replay(record, loaded, [name]))


def _compare(tally: _Tally, name: str, record: InstanceRecord, as_it_is: Outcome, without: Outcome) -> None:
    if without.problem and not as_it_is.problem:
        tally.hindered[name] += 1
        _add_example(tally.ids.setdefault(name, []), record.id)
    elif as_it_is.problem and not without.problem:
        tally.mended[name] += 1


def _add_example(ids: list[str], instance_id: str) -> None:
    if len(ids) < MOST_EXAMPLES:
        ids.append(instance_id)


def _reports(code: Workflow[..., Any], tally: _Tally) -> Iterator[PatchReport]:
    for name in sorted(tally.names):
        new = tally.new[name]
        old = tally.old[name]
        in_the_way = tally.hindered[name] + tally.broken - tally.mended[name]
        examples = [*tally.ids.get(name, ()), *tally.broken_ids][: min(in_the_way, MOST_EXAMPLES)]
        yield PatchReport(code.name, code.version, name, new, old, tally.open - new - old, in_the_way, tuple(examples))


# ---------------------------------------------------------------- the calls in the code


def names_in(fn: Callable[..., Any]) -> set[str]:
    """The patches that a function names, itself or through functions of its package.

    A name that code computes is not found here: it is listed when an open instance has reached it.
    """
    names: set[str] = set()
    seen: set[CodeType] = set()
    waiting: list[FunctionType] = [fn] if isinstance(fn, FunctionType) else []
    while waiting and len(seen) < MOST_FUNCTIONS:
        function = waiting.pop()
        if function.__code__ in seen:
            continue
        closure = inspect.getclosurevars(function)
        reachable: dict[str, Any] = {**function.__globals__, **closure.nonlocals}
        for code in _codes(function.__code__):
            seen.add(code)
            names.update(_constants(code, reachable))
            waiting += _called(code, reachable, function.__module__.partition(".")[0])
    return names


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)


def _constants(code: CodeType, reachable: dict[str, Any]) -> Iterator[str]:
    """The strings that are the first argument of a call of `patched`."""
    is_call = False
    for instruction in dis.get_instructions(code):
        if instruction.opname in {"PUSH_NULL", "CACHE", "EXTENDED_ARG"}:
            continue
        if is_call and isinstance(instruction.argval, str) and instruction.opname.startswith("LOAD_CONST"):
            yield instruction.argval
        is_name = instruction.opname.startswith(("LOAD_GLOBAL", "LOAD_DEREF", "LOAD_NAME"))
        is_attribute = instruction.opname.startswith(("LOAD_ATTR", "LOAD_METHOD"))
        is_call = (is_attribute and instruction.argval == patched.__name__) or (
            is_name and reachable.get(str(instruction.argval)) is patched
        )


def _called(code: CodeType, reachable: dict[str, Any], package: str) -> Iterator[FunctionType]:
    for name in {*code.co_names, *code.co_freevars}:
        value = reachable.get(name)
        if isinstance(value, ModuleType) and value.__name__.partition(".")[0] == package:
            values = [vars(value).get(attribute) for attribute in code.co_names]
        else:
            values = [value]
        for each in values:
            if isinstance(each, FunctionType) and each.__module__.partition(".")[0] == package:
                yield each
