"""An execution that the release before began keeps the rules of that release: 2 MiB, and no constraints (G12)."""

import json
from typing import Annotated, Any

import pytest
from pydantic import Field

import holdfast as hf
from holdfast.payloads.limits import MEBIBYTE
from holdfast.testing.replayer import Replayer

Positive = Annotated[int, Field(gt=0)]


@hf.activity
async def measure(text: str) -> int:
    return len(text)


@hf.activity
async def double(number: Positive) -> Positive:
    return 2 * number


@hf.workflow
async def measures() -> str:
    try:
        await measure("x" * 3 * MEBIBYTE)
    except hf.errors.PayloadTooLarge:
        await hf.event("refused")
    return "done"


@hf.workflow
async def doubles(number: Positive) -> int:
    try:
        number = await double(number)
    except hf.PayloadError:
        await hf.event("refused")
    return number + await hf.event("more", Positive)


def history(workflow: str, *events: dict[str, Any], arguments: object, limit: int) -> str:
    started: dict[str, Any] = {"event": "started", "time_ms": 1, "workflow": workflow, "version": "", "seed": 1}
    started |= {"input": {"data": arguments}}
    if limit:
        started["payload_limit"] = limit
    return json.dumps([started, *events])


def refused() -> dict[str, Any]:
    return {"event": "event_awaited", "wait": 0, "name": "refused"}


def scheduled(name: str) -> dict[str, Any]:
    return {"event": "activity_scheduled", "activity": 0, "name": name}


def test_G12_without_a_recorded_limit_three_mebibytes_are_refused() -> None:
    replayer = Replayer(workflows=[measures])
    replayer.replay(history("measures", refused(), arguments={}, limit=0))
    with pytest.raises(hf.errors.HistoryMismatch):
        replayer.replay(history("measures", scheduled("measure"), arguments={}, limit=0))


def test_G12_a_recorded_limit_takes_three_mebibytes() -> None:
    replayer = Replayer(workflows=[measures])
    replayer.replay(history("measures", scheduled("measure"), arguments={}, limit=32 * MEBIBYTE))


@hf.workflow
async def sends_bytes() -> str:
    try:
        hf.raise_event("other", "image", b"x" * (2 * MEBIBYTE - 1))
    except hf.errors.PayloadTooLarge:
        return await hf.event("refused", str)
    return await hf.event("sent", str)


@pytest.mark.parametrize("limit", [0, 2 * MEBIBYTE])
def test_G12_without_a_recorded_limit_bytes_count_as_base64(limit: int) -> None:
    raised = {"event": "event_raised", "number": 0, "target": "other", "name": "image"}
    sent = (raised, {"event": "event_awaited", "wait": 0, "name": "sent"})
    right, wrong = (sent, (refused(),)) if limit else ((refused(),), sent)
    replayer = Replayer(workflows=[sends_bytes])
    replayer.replay(history("sends_bytes", *right, arguments={}, limit=limit))
    with pytest.raises(hf.errors.HistoryMismatch):
        replayer.replay(history("sends_bytes", *wrong, arguments={}, limit=limit))


NEGATIVE_ALL_ALONG = (
    scheduled("double"),
    {"event": "activity_completed", "time_ms": 2, "activity": 0, "result": {"data": -2}},
    {"event": "event_awaited", "wait": 0, "name": "more"},
    {"event": "event_received", "time_ms": 3, "name": "more", "value": {"data": -3}},
    {"event": "workflow_completed", "result": {"data": -5}},
)


def test_G12_constraints_are_not_checked_in_a_history_of_the_release_before() -> None:
    """Its arguments, results and events were taken then, so they are taken in every replay."""
    Replayer(workflows=[doubles]).replay(history("doubles", *NEGATIVE_ALL_ALONG, arguments={"number": -1}, limit=0))


def test_G12_a_type_is_checked_in_a_history_of_the_release_before() -> None:
    wrong = {"event": "activity_completed", "time_ms": 2, "activity": 0, "result": {"data": "two"}}
    Replayer(workflows=[doubles]).replay(
        history("doubles", scheduled("double"), wrong, refused(), arguments={"number": -1}, limit=0)
    )


def test_G12_a_constraint_that_refused_a_result_refuses_it_in_each_replay() -> None:
    completed = {"event": "activity_completed", "time_ms": 2, "activity": 0, "result": {"data": -2}}
    Replayer(workflows=[doubles]).replay(
        history("doubles", scheduled("double"), completed, refused(), arguments={"number": 1}, limit=32 * MEBIBYTE)
    )
