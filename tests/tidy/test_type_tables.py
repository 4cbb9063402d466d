"""Tables that are keyed by type, and `match` statements with a default, cover every member of their union.

A new history event, member of a commit or action of a flow fails here until each place has decided about it.
"""

import ast
from collections.abc import Collection, Iterator, Mapping
from typing import Any, get_args

import msgspec
import pytest
from tools.citations import ROOT

from holdfast.audit.attempts import ENDED
from holdfast.audit.flows import POSSIBLE
from holdfast.audit.histories import _READERS  # pyright: ignore[reportPrivateUsage]
from holdfast.cli.history import DESCRIBED
from holdfast.client.views.steps import STATES_BY_END
from holdfast.core import history as ev
from holdfast.core.flow.definition import Action
from holdfast.core.flow.scheduler import MOVE_OF, NodeOutcome
from holdfast.core.flow.state import _APPLY as FLOW_STATE  # pyright: ignore[reportPrivateUsage]
from holdfast.core.steps import _BEGINS, _ENDS  # pyright: ignore[reportPrivateUsage]
from holdfast.flows.run import _APPLY as FLOW_RUN  # pyright: ignore[reportPrivateUsage]
from holdfast.replay.run import _APPLY  # pyright: ignore[reportPrivateUsage]
from holdfast.runtime.committer import MAY_CLOSE_OTHERS
from holdfast.storage.members.attempts import CancelActivity
from holdfast.storage.members.base import CommitMember
from holdfast.storage.members.contract_rows import InsertReport, InsertRequest
from holdfast.storage.members.instances import Pause, Resume, RetryBlocked, SetAttributes, Start, Terminate, Watch
from holdfast.storage.members.member import Member
from holdfast.storage.members.messages import AskQuery, Deliver
from holdfast.storage.members.outcomes import Outcome
from holdfast.storage.members.restoring import LiftNumbers, RestoreInstances
from holdfast.storage.members.retention import DeleteExecutions, DeleteFamilies
from holdfast.storage.relational.apply.dispatch import APPLY_BY_TYPE

EVENTS = set(get_args(ev.HistoryEvent))
INPUTS = set(get_args(ev.Input))
COMMANDS = set(get_args(ev.Command))
FLOW_COMMANDS = set(get_args(ev.FlowCommand))
EXTERNAL_ENDS = set(get_args(ev.ExternalEnd))
CODE_ENDS = {ev.ExecutionCompleted, ev.ExecutionFailed, ev.ExecutionCancelled, ev.ContinuedAsNew}
UPDATES = {ev.UpdateAccepted, ev.UpdateHandlerCompleted, ev.UpdateHandlerFailed}
OF_CODE = {ev.ActivityCancelRequested, ev.CancelSent, ev.SendAwaited, ev.SendJudged}
"""Calls that are cancelled and messages that are awaited: only code does this."""
MEMBERS = set(get_args(Member))
STEP_BEGINS = {ev.ActivityScheduled, ev.TimerStarted, ev.EventAwaited, ev.ChildScheduled}
STEP_ENDS = {
    ev.ActivityCompleted,
    ev.ActivityFailed,
    ev.ActivityAbandoned,
    ev.TimerFired,
    ev.TimerCancelled,
    ev.EventWaitEnded,
    *ev.CHILD_ENDS,
}
WITH_PAYLOAD = {
    event
    for event in EVENTS
    if any(ev.Payload in (field.type, *get_args(field.type)) for field in msgspec.structs.fields(event))
}

TABLES: dict[str, tuple[Collection[Any], set[Any], set[Any]]] = {
    "the store applies every member": (APPLY_BY_TYPE, MEMBERS, set()),
    "a committer announces every outcome that names closed children": (
        MAY_CLOSE_OTHERS,
        {outcome for outcome in get_args(Outcome) if "ended" in outcome.__struct_fields__},
        set(),
    ),
    "a client commits these members without a lease": (
        {Start, Terminate, Deliver, AskQuery, CancelActivity, RetryBlocked, SetAttributes}
        | {Pause, Resume, InsertRequest, InsertReport, Watch, LiftNumbers, RestoreInstances}
        | {DeleteFamilies, DeleteExecutions},
        {member for member in MEMBERS if member.needs_lease is not CommitMember.needs_lease},
        set(),
    ),
    "a run of code applies every input": (_APPLY, INPUTS, set()),
    "a run of a flow decides about every input": (FLOW_RUN, INPUTS, set()),
    "a mismatch describes every event that is not an input": (
        {each for each in EVENTS if each.describe is not ev.HistoryEventBase.describe},
        COMMANDS | EXTERNAL_ENDS,
        set(),
    ),
    "replay compares every command of code but the ends": (
        {each for each in EVENTS if each.identity},
        COMMANDS,
        FLOW_COMMANDS | CODE_ENDS,
    ),
    "a flow's state reads every event that a flow has": (
        FLOW_STATE,
        EVENTS,
        # A release is an update; `NodeReleased` has its effect. No side effects are recorded. Nodes read no attributes.
        # Ends change no node.
        {ev.SideEffectRecorded, ev.PatchApplied, ev.EventSetAside, ev.AttributesChanged}
        | OF_CODE
        | UPDATES
        | CODE_ENDS
        | EXTERNAL_ENDS,
    ),
    "verify reads every event, flows and updates in modules of their own": (
        _READERS,
        EVENTS,
        # Nothing else in the store is compared with these.
        FLOW_COMMANDS
        | UPDATES
        | OF_CODE
        | {ev.ChildCancelRequested, ev.EventRaised, ev.SideEffectRecorded, ev.AttributesChanged, ev.PatchApplied},
    ),
    "every event with a payload names its field": (
        {each for each in EVENTS if each.payload_field},
        WITH_PAYLOAD,
        set(),
    ),
    "a step has a begin": (_BEGINS, STEP_BEGINS, set()),
    "a step has an end": (_ENDS, STEP_ENDS, set()),
    "an ended step is shown, cancelled by default": (
        STATES_BY_END,
        STEP_ENDS | {ev.EventReceived},
        {ev.ActivityAbandoned, ev.TimerCancelled, ev.EventWaitEnded, ev.ChildStopped},
    ),
    "flow events are shown in words, the others by their fields": (DESCRIBED, FLOW_COMMANDS, set()),
    "an activity that ended has an attempt in this state": (
        ENDED,
        {ev.ActivityCompleted, ev.ActivityFailed},
        set(),
    ),
    "a node of every action has possible digits": (POSSIBLE, set(Action.__subclasses__()), set()),
    "every outcome of a node moves its digit": (MOVE_OF, set(get_args(NodeOutcome)), set()),
}
"""For each table its keys, the union, and the members that the table leaves out on purpose."""


@pytest.mark.parametrize("what", TABLES)
def test_a_table_covers_its_union(what: str) -> None:
    table, union, left_out = TABLES[what]
    assert _named(table) == _named(union - left_out)
    assert left_out <= union


def test_every_event_is_an_input_a_command_or_an_external_end() -> None:
    assert EVENTS == INPUTS | COMMANDS | EXTERNAL_ENDS
    assert set(ev.INPUTS) == INPUTS
    assert set(ev.FROM_OUTSIDE) == EXTERNAL_ENDS
    assert STEP_BEGINS | STEP_ENDS <= EVENTS


def _named(types: Collection[Any]) -> list[str]:
    return sorted(each.__name__ for each in types)


# ---------------------------------------------------------------- match statements with a default

MEMBER_DEFAULTS: Mapping[str, str] = {
    "_is_likely": "AnswerQuery AskQuery Block CancelActivity ClaimAttempts ClaimInstances ClaimQueries CloseChildren "
    "DeleteExecutions DeleteFamilies DeleteQueries Expire HandleReports InsertReport InsertRequest LiftNumbers "
    "MarkWorkerLost Pause QueueAttempts ReleaseUnknown RestoreInstances Resume RetryBlocked SaveFlow SetAttributes "
    "SetDeadline StreamValues Terminate",
}
"""Functions that match on a member of a commit, with the members that take the default branch."""


def matches(function: str) -> Iterator[set[str]]:
    """The classes that the `match` statements of the functions with this name have cases for."""
    for path in sorted((ROOT / "src" / "holdfast").rglob("*.py")):
        text = path.read_text("utf-8")
        if f"def {function}(" not in text:
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef) and node.name == function:
                yield from (_classes(each) for each in ast.walk(node) if isinstance(each, ast.Match))


def _classes(match: ast.Match) -> set[str]:
    return {ast.unparse(each.cls).split(".")[-1] for each in ast.walk(match) if isinstance(each, ast.MatchClass)}


@pytest.mark.parametrize("function", MEMBER_DEFAULTS)
def test_a_match_on_members_has_decided_about_each(function: str) -> None:
    known = {each.__name__ for each in MEMBERS}
    (cases,) = [cases for cases in matches(function) if len(cases & known) > 1]
    assert sorted(known - cases) == sorted(MEMBER_DEFAULTS[function].split())


@pytest.mark.parametrize("event", sorted(EVENTS, key=str))
def test_the_fields_that_an_event_class_names_exist(event: Any) -> None:
    types = {field.name: field.type for field in msgspec.structs.fields(event)}
    assert set(event.identity) <= types.keys()
    if event.payload_field:
        assert ev.Payload in (types[event.payload_field], *get_args(types[event.payload_field]))
