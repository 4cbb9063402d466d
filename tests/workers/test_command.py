"""``holdfast worker``: what it says, how it leaves, and its exit codes (W10). Real processes."""

import json
import os
import signal
from pathlib import Path

import pytest
from tests.forking.processes import run
from tests.scenarios.support import together
from tests.workers import app
from tests.workers.processes import APP, Process, await_note, key_in, notes, open_gate, worker
from tests.workers.support import sound, stored

import holdfast as hf
from holdfast.authoring.registry import Registry
from holdfast.cli.store_option import store_path
from holdfast.compose import display_name

pytestmark = pytest.mark.slow


async def start(store: str, workflow: str, *arguments: object, id: str) -> None:  # noqa: A002 - as users say
    async with await hf.connect(store) as client:
        await client.start(workflow, *arguments, id=id)


async def result(store: str, instance_id: str) -> object:
    async with await hf.connect(store) as client:
        return await client.get(instance_id).result(timeout=30)


async def states(store: str, instance_id: str) -> list[tuple[str, int, int]]:
    async with await hf.connect(store) as client:
        return await stored(client, instance_id)


def command(*words: str) -> str:
    done = run("holdfast.cli:main", *words)
    assert done.code == 0, done.complaints
    return done.said


def test_a_worker_prints_what_it_serves_in_one_line_and_others_see_it(store: str) -> None:
    process = Process(
        store, "worker", APP, "--queues", "parcels, mail", "--concurrency", "7", "--lease", "5", is_fresh=True
    )
    try:
        said = process.headline()
        key = key_in(said)
        known = Registry([app])
        served = f"{len(known.workflows)} workflows, {len(known.activities)} activities"
        place = display_name(store_path(store))
        options = f"7 at once, lease 5 s, build {known.build}"
        assert said == f"worker {key} serves parcels, mail in {place}: {served}, {options}"
        (fields,) = json.loads(command("workers", "--json", "--store", store))
        assert (fields["key"], fields["slots"], fields["lease"], fields["pid"]) == (key, 7, 5.0, process.pid)
        assert fields["host"] == os.uname().nodename
        queues = json.loads(command("queues", "--json", "--store", store))
        assert [(queue["name"], queue["served_by"]) for queue in queues] == [("mail", [key]), ("parcels", [key])]
        process.send_signal(signal.SIGTERM)
        code, logged = process.left()
        assert code == 0
        assert "no activity here uses the queue 'mail'; they use default, lent, parcels" in logged
        assert "Traceback" not in logged
        assert command("workers", "--store", store) == "No workers.\n"
    finally:
        process.end()
    sound(store)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_W10_a_signal_lets_a_worker_drain(store: str, number: signal.Signals) -> None:
    together(start(store, "waits", "a", id="a"))
    together(start(store, "crunches", "b", id="b"))
    with worker(store, "--lease", "60") as first:
        await_note(store, "began", "a", 1)
        await_note(store, "began", "b", 1)
        os.killpg(first.pid, number)  # as terminals and supervisors do: its child processes hear it, too
        with worker(store, "--lease", "60") as second:
            assert first.is_running
            open_gate(store, "a 1")
            open_gate(store, "b 1")
            assert together(result(store, "a")) == "a 1"
            assert together(result(store, "b")) == "b 1"
            code, logged = first.left()
            assert code == 0, logged
            assert f"{number.name}: the worker claims nothing more; its activities (2) have 25 s to end" in logged
            second.send_signal(number)
            assert second.left()[0] == 0
    assert [line[:3] for line in notes(store) if line[0] == "began"] == [["began", "a", "1"], ["began", "b", "1"]]
    sound(store)


def test_W10_a_second_signal_stops_a_worker_at_once(store: str) -> None:
    together(start(store, "waits", "a", id="a"))
    with worker(store, "--lease", "60") as first:
        await_note(store, "began", "a", 1)
        first.send_signal(signal.SIGTERM)
        first.send_signal(signal.SIGINT)
        code, logged = first.left(10)
        assert code == 130, logged
        assert "the worker stops" in logged
    assert together(states(store, "a")) == [("TIMED_OUT", 0, 0), ("READY", 0, 0)], "no loss, and no wait for the lease"
    open_gate(store, "a 2")
    with worker(store):
        assert together(result(store, "a")) == "a 2"
    sound(store)


def test_W10_a_drain_is_over_when_its_time_is(store: str) -> None:
    together(start(store, "waits", "a", id="a"))
    with worker(store, "--lease", "60", "--drain-timeout", "0.2") as first:
        await_note(store, "began", "a", 1)
        first.send_signal(signal.SIGTERM)
        code, logged = first.left(15)
        assert code == 0, logged
    assert together(states(store, "a")) == [("TIMED_OUT", 0, 0), ("READY", 0, 0)]
    sound(store)


CRUNCHING = """
import os

import holdfast as hf


@hf.activity(process=True)
def crunch() -> int:
    return os.getpid()


@hf.workflow
async def crunching() -> int:
    return await crunch()
"""


def test_a_body_in_a_process_finds_the_program_wherever_that_is(store: str, tmp_path: Path) -> None:
    (tmp_path / "far").mkdir()
    program = tmp_path / "far" / "crunching.py"
    program.write_text(CRUNCHING, "utf-8")
    together(start(store, "crunching", id="a"))
    with worker(store, app=str(program)) as process:
        assert together(result(store, "a")) != process.pid
    sound(store)
