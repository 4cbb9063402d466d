"""``holdfast query``, ``update`` and ``watch``: a worker answers them, and what cannot be answered is a sentence."""

import asyncio
import json
import re
import signal
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from threading import Event, Thread

import pytest
from tests.forking.processes import program
from tests.unit.cli.commands import Command

import holdfast as hf
from holdfast.cli import send as waiting


@hf.workflow
async def basket() -> list[int]:
    found: list[int] = []

    @hf.on_query
    def total(factor: int = 1) -> int:
        return factor * sum(found)

    @hf.on_update
    def add(number: int) -> int:
        if number == 0:
            raise LookupError("nothing to add")
        found.append(number)
        hf.set_status(f"{len(found)} in it")
        return sum(found)

    @add.validator
    def check(number: int) -> None:
        if number > 9:
            raise ValueError("too many")

    await hf.wait_until(lambda: len(found) == 2)
    return found


@contextmanager
def working(command: Command) -> Generator[Callable[[], None]]:
    """A worker on the store of the command, in a thread of its own: the command has the main one."""
    ready, stop = Event(), Event()

    async def work() -> None:
        async with hf.Engine(command.folder / "holdfast.db", workflows=[basket]) as engine:
            await engine.start(basket, id="it")
            ready.set()
            await asyncio.to_thread(stop.wait)

    thread = Thread(target=lambda: asyncio.run(work()))
    thread.start()
    assert ready.wait(30)
    try:
        yield stop.set
    finally:
        stop.set()
        thread.join(30)


def test_C1_a_command_asks_updates_and_watches_what_a_worker_has(filled: Command) -> None:
    with working(filled):
        assert (filled("query", "it", "total").out, filled("query", "it", "total", "[3]").out) == ("0\n", "0\n")
        for _ in range(2):
            assert filled("update", "it", "add", "--input", "4", "--id", "one").out == "4\n"
        assert filled("query", "it", "total", "3").out == "12\n"
        refused = filled("update", "it", "add", "--input", "[10]")
        assert (refused.code, refused.out) == (1, "")
        assert "the update 'add' of 'it' was rejected: ValueError: too many" in refused.err
        failed = filled("update", "it", "add", "--input", "0")
        assert failed.code == 1
        assert "failed: LookupError: nothing to add" in failed.err
        assert "'it' has no query 'nope'; it has total" in filled.refused("query", "it", "nope")
        assert "the workflow has add" in filled.refused("update", "it", "nope")
        broken = filled("query", "it", "total", '["x"]')
        assert broken.code == 1
        assert "argument `factor` cannot be read" in broken.err
        sent = filled("update", "it", "add", "-i", "5", "--id", "two", "--no-wait")
        assert json.loads(sent.out) == {"id": "it", "update": "two"}
        assert filled("update-result", "it", "two").out == "9\n"
        assert "'three' of 'it' was not taken" in filled.refused("update-result", "it", "three")
        assert "no instance has the id 'nobody'" in filled.refused("update-result", "nobody", "two")
        watched = filled("watch", "it")
        assert watched.code == 0
        assert watched.out.split("  ")[1:] == ["COMPLETED", "turn 4", "workflow completed", "2 in it\n"]
        (line,) = filled("watch", "it", "--json").out.splitlines()
        assert json.loads(line)["state"] == "COMPLETED"
        assert filled("query", "it", "total").out == "9\n"
    assert filled("verify").code == 0


REVIEW = """
flow: review
activities:
  start:  {trigger: true}
  draft:  {run: draft, after: start, hold: true}
  final:  {run: draft, after: draft, hold: {timeout: 1h}}
output: [draft.output, final.output]
"""


@hf.activity
async def draft() -> str:
    return "a draft"


@contextmanager
def reviewing(command: Command) -> Generator[None]:
    """A worker with a flow whose first node is held."""
    ready, stop = Event(), Event()

    async def work() -> None:
        flow = hf.Flow.parse(REVIEW)
        async with hf.Engine(command.folder / "holdfast.db", flows=[flow], activities=[draft]) as engine:
            handle = await engine.start(flow, id="it")
            async for change in handle.watch():
                if change.collation_key is not None and change.collation_key.startswith("5"):
                    break
            ready.set()
            await asyncio.to_thread(stop.wait)

    thread = Thread(target=lambda: asyncio.run(work()))
    thread.start()
    assert ready.wait(30)
    try:
        yield
    finally:
        stop.set()
        thread.join(30)


def test_K11_a_command_releases_a_node_that_is_held(filled: Command) -> None:
    with reviewing(filled):
        shown = filled("show", "it").out
        assert "5  paused" in shown
        assert "draft, hold" in shown
        assert 'held: "a draft"' in shown
        assert "release (node draft)" in shown
        (node,) = [one for one in json.loads(filled("show", "it", "--json").out)["nodes"] if one["id"] == "draft"]
        assert (node["digit"], node["held"], node["held_output"], node["output"]) == (5, True, "a draft", None)
        refused = filled("release", "it", "final")
        assert (refused.code, refused.out) == (1, "")
        assert "'final' is pending (9), not held (5), so it cannot be released; held are draft" in refused.err
        assert "not valid JSON" in filled.refused("release", "it", "draft", "--output", "{")
        for _ in range(2):
            done = filled("release", "it", "draft", "--output", '{"text": "better"}', "--id", "one")
            assert (done.code, done.out) == (0, "node draft of it was released\n")
        again = filled("release", "it", "draft")
        assert again.code == 1
        assert "'draft' is released (4)" in again.err
        history = filled("history", "it").out
        assert "node_released" in history
        assert 'draft: {"text":"better"}' in history
        last = filled("release", "it", "final", "--json")
        while last.code != 0:  # its activity still runs
            last = filled("release", "it", "final", "--json")
        assert json.loads(last.out) == {"id": "it", "node": "final", "released": True}
        assert filled("watch", "it").code == 0
        assert "'it' is COMPLETED" in filled.refused("release", "it", "final")
    assert filled("verify").code == 0


def test_K11_a_release_without_a_worker_is_applied_later(filled: Command) -> None:
    sent = filled("release", "open", "draft", "--timeout", "0.05", "--id", "one")
    assert sent.code == 1
    assert "the release of 'draft' of 'open' was not applied in time; the same command with --id one" in sent.err


def test_without_a_worker_nobody_answers_in_time(filled: Command) -> None:
    asked = filled("query", "good", "total", "--timeout", "0.05")
    assert asked.code == 1
    assert (
        "the query 'total' of 'good' was not answered in time; start a worker that has its workflow, or raise --timeout"
        in asked.err
    )
    sent = filled("update", "open", "add", "--timeout", "0.05", "--id", "one")
    assert sent.code == 1
    assert "was not answered in time; the same command with --id one waits for its answer" in sent.err


@pytest.mark.parametrize("arguments", [["query", "good", "total"], ["update", "open", "add", "--id", "one"]])
def test_a_wait_that_no_worker_can_end_says_why_once(
    filled: Command, monkeypatch: pytest.MonkeyPatch, arguments: list[str]
) -> None:
    monkeypatch.setattr(waiting, "PATIENCE_SECONDS", 0.01)
    done = filled(*arguments, "--timeout", "0.2")
    assert (done.code, done.out) == (1, "")
    first, last = done.err.splitlines()
    assert first == "holdfast: still waiting: no worker is alive: start one with holdfast worker"
    assert "in time" in last
    with working(filled):
        done = filled(*arguments, "--timeout", "0.2")
    assert "still waiting: no live worker has workflow 'checkout' (known: basket)" in done.err


@pytest.mark.slow
def test_ctrl_c_while_an_update_waits_names_the_id_to_ask_again_with(filled: Command) -> None:
    command = [sys.executable, "-m", "holdfast", "update", "open", "add"]
    with program(command, cwd=filled.folder) as process:
        assert process.stderr is not None
        assert "still waiting" in process.stderr.readline()
        process.send_signal(signal.SIGINT)
        _, told = process.communicate(timeout=30)
    assert process.returncode == 130
    assert re.fullmatch(r"holdfast: stopped waiting; .*: the same command with --id \w+ waits for its answer\s+", told)


def test_a_wait_that_a_worker_can_end_is_silent(filled: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    with working(filled):
        monkeypatch.setattr(waiting, "PATIENCE_SECONDS", 0.0)
        done = filled("update", "it", "add", "--input", "4")
        assert (done.out, done.err) == ("4\n", "")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["query", "nobody", "total"], "no instance has the id 'nobody'"),
        (["update", "nobody", "add"], "no instance has the id 'nobody'"),
        (["watch", "nobody"], "no instance has the id 'nobody'"),
        (["update", "good", "add"], "'good' is COMPLETED: the update 'add' of 'good' was not taken"),
        (["query", "good", "total", "{"], "JSON"),
        (["update", "good", ""], "must not be empty"),
    ],
)
def test_what_cannot_be_asked_is_one_sentence(filled: Command, arguments: list[str], sentence: str) -> None:
    assert sentence in filled.refused(*arguments)


def test_a_watch_of_what_did_not_complete_ends_with_bad_news(filled: Command) -> None:
    filled("terminate", "open")
    watched = filled("watch", "open", "--json")
    assert (watched.code, watched.err) == (1, "holdfast: open is TERMINATED\n")
    assert json.loads(watched.out)["last_event"] == "workflow_terminated"
