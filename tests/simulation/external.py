"""Workflows with external activities for the simulation, and the comparison of their results with the reports."""

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from typing import Any

import holdfast as hf
from holdfast.testing.simulation.contract_checks import ActivityOutcome
from holdfast.testing.simulation.simulation import CANCELLED, CancelInstance, Job

RETRY = hf.Retry(attempts=3, initial=0.5, maximum=2)


@hf.activity(external=True, heartbeat=5, claim_timeout=3, max_claims=3, retry=RETRY)
async def train(number: int) -> int: ...  # type: ignore[empty-body]


@hf.activity(external=True, start_to_close=20, schedule_to_close=120, claim_timeout=2, queue="gpu", retry=RETRY)
async def label(number: int) -> int: ...  # type: ignore[empty-body]


@hf.activity(external=True, heartbeat=60, start_to_close=20_000, claim_timeout=4_000)
async def render(number: int) -> int: ...  # type: ignore[empty-body]


@hf.activity(external=True, heartbeat=5, claim_timeout=3, retry=RETRY)
def feed(number: int) -> AsyncIterator[int]: ...  # type: ignore[empty-body]


EXTERNAL: list[hf.Activity[..., Any]] = [train, label, render, feed]
CALLED: dict[str, Any] = {activity.name: activity for activity in EXTERNAL}


async def call(name: str, number: int) -> list[Any]:
    """How one activity ended."""
    try:
        if name == feed.name:
            values: list[int] = []
            stream = feed(number)
            while True:
                try:
                    async for value in stream:
                        values.append(value)
                except hf.StreamRestarted:
                    values.clear()
                else:
                    return ["ok", values]
        return ["ok", await CALLED[name](number)]
    except hf.ActivityCancelled:
        return ["cancelled"]
    except hf.HoldfastError as error:
        return ["failed", type(error).__name__, str(error)]


@hf.workflow
async def errands(names: list[str]) -> list[Any]:
    """Calls external activities side by side and waits for an event."""
    ended = await asyncio.gather(*(call(name, number) for number, name in enumerate(names)))
    return [await hf.event("go", int), ended]


def agrees(result: Any, outcomes: Sequence[ActivityOutcome]) -> bool:
    """Whether a result is that of the applied reports."""
    if result == CANCELLED:
        return True
    _, ended = result
    return len(ended) == len(outcomes) and all(
        _agrees(one, outcome) for one, outcome in zip(ended, outcomes, strict=True)
    )


def _agrees(one: list[Any], outcome: ActivityOutcome) -> bool:
    match one[0]:
        case "ok" if outcome.name == feed.name:
            return outcome.state == "COMPLETED" and _are_streamed(one[1], outcome)
        case "ok":
            return outcome.state == "COMPLETED" and bool(one[1] == json.loads(outcome.completed or "null"))
        case "cancelled":
            return outcome.state == "CANCELLED" or (
                outcome.cancel_requested and outcome.state in ("FAILED", "TIMED_OUT", "CANCELLED")
            )
        case _:
            return _fails(one, outcome)


def _are_streamed(values: list[Any], outcome: ActivityOutcome) -> bool:
    """Whether values are those of the responses; in the order of their sequences, or of their rows."""
    responses = list(outcome.responses)
    if all(sequence is not None for sequence, _ in responses):
        responses.sort(key=lambda response: response[0] or 0)
    elif any(sequence is not None for sequence, _ in responses):  # responses of several senders, in any order
        return sorted(values) == sorted(value for _, value in responses)
    return values == [value for _, value in responses]


def _fails(one: list[Any], outcome: ActivityOutcome) -> bool:
    _, kind, message = one
    if outcome.state == "TIMED_OUT":
        return bool(kind == "ActivityTimedOut")
    if outcome.state != "FAILED" or outcome.cancel_requested:
        return False
    if outcome.failed is None:
        return kind in ("ClaimsExhausted", "RemoteError") and "claimed" in message
    return bool(kind == "RemoteError")


class Anything:
    """Equal to every result: it is compared with the reports afterwards."""

    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        return True


def contract_jobs(seed: int) -> list[Job]:
    """A mix of instances with one to four external activities."""
    names = [activity.name for activity in EXTERNAL]
    found: list[Job] = []
    for number in range(1 + seed % 4):
        called = [names[(seed + number * step) % len(names)] for step in range(1, 2 + (seed + number) % 4)]
        actions = (CancelInstance(),) if (seed + number) % 7 == 0 else ()
        found.append(Job(f"errand-{number}", errands, (called,), Anything(), actions, agrees=agrees))
    return found
