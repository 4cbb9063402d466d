"""Completion in a shell: ids and names from the store, words of options, and files (as bash receives them)."""

import asyncio
from collections.abc import Callable

import pytest
from click.shell_completion import BashComplete
from tests.unit.cli.commands import Command, sql

import holdfast as hf
from holdfast.cli.commands import root

Complete = Callable[..., list[str]]
REVIEW = """
flow: review
activities:
  start: {trigger: true}
  draft: {raise: {event: draft, to: "'review-0'"}, after: start, hold: true}
  other: {wait: {event: go}, after: start}
  ready: {raise: {event: ready, to: "'review-0'"}, after: start, hold: true}
"""


@hf.activity(external=True, start_to_close=60)
async def train(number: int) -> int: ...  # type: ignore[empty-body]


@hf.activity(external=True, start_to_close=60)
async def trial(number: int) -> int: ...  # type: ignore[empty-body]


@hf.workflow
async def learn() -> None:
    await asyncio.gather(train(1), train(2), trial(3))


def complete(*words: str) -> list[str]:
    """The candidates for the last word."""
    found = BashComplete(root, {}, "holdfast", "_HOLDFAST_COMPLETE").get_completions([*words[:-1]], words[-1])
    return [f"<{item.type}>" if item.type != "plain" else str(item.value) for item in found]


@pytest.fixture
def stored(holdfast: Command) -> Command:
    """A store with a flow whose nodes are held, and with open activities."""

    async def fill() -> None:
        flow = hf.Flow.parse(REVIEW)
        path = holdfast.folder / "holdfast.db"
        async with hf.Engine(path, workflows=[learn], flows=[flow], activities=[train, trial]) as engine:
            await engine.start(learn, id="learn-1")
            await engine.start("review", {}, id="review-1")
            for name in ("learn-1", "review-1"):
                async for _ in engine.get(name).watch():
                    if len((await engine.get(name).describe()).waiting_for) == 3:
                        break

    asyncio.run(fill())
    return holdfast


@pytest.mark.usefixtures("stored")
def test_ids_and_names_are_completed_from_the_store() -> None:
    assert complete("show", "") == ["review-1", "learn-1"]
    assert complete("list", "--workflow", "r") == ["review"]
    assert complete("list", "--parent", "l") == ["learn-1"]
    assert complete("start", "le") == ["learn"]
    assert complete("activity", "claim", "--name", "") == ["train", "trial"]
    assert complete("activity", "run", "--queue", "d") == ["default"]
    assert len(complete("activity", "complete", "--exec-id", "")) == 3


@pytest.mark.usefixtures("stored")
def test_K11_the_nodes_that_are_held_are_completed() -> None:
    assert complete("release", "review-1", "") == ["draft", "ready"]
    assert complete("release", "review-1", "d") == ["draft"]
    assert complete("release", "learn-1", "") == complete("release", "no-such", "") == []


@pytest.mark.usefixtures("stored")
def test_A1_the_open_activities_of_an_instance_are_completed() -> None:
    assert complete("activity", "cancel", "learn-1", "") == ["train#1", "train#2", "trial"]
    assert complete("activity", "cancel", "learn-1", "tri") == ["trial"]


def test_G12_the_blocked_instances_are_completed(stored: Command) -> None:
    assert complete("resume", "") == []
    sql(stored.folder / "holdfast.db", "UPDATE instances SET state = 'BLOCKED' WHERE id = 'learn-1'")
    assert complete("resume", "") == ["learn-1"]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["requests", "--state", ""], ["NEW", "ACCEPTED", "REFUSED", "TRACE"]),
        (["list", "--state", "can"], ["CANCEL_REQUESTED", "CANCELLED"]),
        (["activity", "claim", "--as", "p"], ["PREPARING"]),
        (["start", "x", "--policy", "r"], ["reuse"]),
        (["run", "x", "--policy", ""], ["idempotent", "reuse", "terminate_existing"]),
        (["worker", "sh"], ["<file>"]),
        (["run", "sh"], ["<file>"]),
        (["flow", "check", "or"], ["<file>"]),
        (["flow", "run", "a.yaml", "--app", "or"], ["<file>"]),
        (["show", "x", "--store", ""], ["<file>"]),
    ],
)
def test_words_and_files_are_completed_without_a_store(
    holdfast: Command, words: list[str], expected: list[str]
) -> None:
    assert complete(*words) == expected
    assert [path.name for path in holdfast.folder.iterdir()] == ["shop.py"]
