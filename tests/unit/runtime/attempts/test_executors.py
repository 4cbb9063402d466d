"""Bodies in processes of their own: what they return, how they end, and that the worker lives."""

import asyncio
import os
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import cast
from unittest.mock import MagicMock

import msgspec
import pytest
from tests.scenarios.support import SleepingMachine, until
from tests.support.inside import attempts_of, committer_of, free_slots, slot_count, worker_of
from tests.unit.runtime.attempts import bodies

import holdfast as hf
from holdfast.runtime.attempts import runner as runtime_attempts
from holdfast.runtime.attempts.executors import _answer
from holdfast.runtime.attempts.process_child import (
    Begin,
    BodyHeartbeat,
    BodyResult,
    BodyTask,
    Cancel,
    ChildContext,
    Ready,
    framed,
)
from holdfast.runtime.attempts.running_attempt import RunningAttempt
from holdfast.runtime.platform import Platform, SystemClockAndIds

pytestmark = pytest.mark.slow


def test_a_body_in_a_process_is_reused_gets_its_input_and_its_heartbeat_details() -> None:
    async def run() -> dict[str, object]:
        async with hf.Engine(":memory:", modules=[bodies]) as engine:
            return await engine.run(bodies.work, id="w")

    result = asyncio.run(run())
    pids = cast("list[int]", result["pids"])
    assert len(set(pids)) == 1
    assert os.getpid() not in pids
    assert result["doubled"] == [2, 4]
    assert (result["details"], result["attempt"], result["key"]) == ({"done": 41}, 2, "w/1/1/3")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("refuses", "LookupError: nothing here"),
        ("exits", "RemoteError: 3"),
        ("dies", "ProcessDied: the process of dies ended with code 7 before its body did"),
        ("gives_what_cannot_be_stored", "PayloadError: "),
        ("never_ends", "ActivityTimedOut: never_ends did not answer in time: start_to_close is 0.3 s"),
    ],
)
def test_however_a_body_ends_the_worker_lives(name: str, said: str) -> None:
    async def run() -> tuple[str, dict[str, object]]:
        async with hf.Engine(":memory:", modules=[bodies]) as engine:
            ended = await engine.run(bodies.call, name)
            return ended, await engine.run(bodies.work)

    ended, afterwards = asyncio.run(run())
    assert ended.startswith(said)
    assert afterwards["doubled"] == [2, 4]


def test_W7_a_body_does_not_begin_in_its_process_after_the_lease_of_the_worker_is_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    machine, refused = SleepingMachine(), list[str]()
    begin = RunningAttempt.begin

    def late(running: RunningAttempt) -> None:
        if running.activity.process:
            machine.slept_ms = 60_000
        try:
            begin(running)
        except hf.Cancelled as cancelled:
            refused.append(str(cancelled))
            raise

    monkeypatch.setattr(RunningAttempt, "begin", late)

    @hf.workflow
    async def flow() -> int:
        return await bodies.which_attempt()

    async def run() -> int:
        world = Platform(providers=machine)
        async with hf.Engine(
            ":memory:", workflows=[flow], activities=[bodies.which_attempt], lease=30, _platform=world
        ) as engine:
            return await engine.run(flow, id="it")

    assert asyncio.run(run()) == 2
    assert refused == [
        "attempt 1 of which_attempt of instance it is given up by its worker, which leaves or has lost its lease"
    ]


def context_of(line: socket.socket) -> ChildContext:
    info = msgspec.json.encode(["it", "flow", "body", 0, 1, "default", None])
    return ChildContext(BodyTask("m", "", "body", msgspec.Raw(b"{}"), msgspec.Raw(info), "key"), line)


def test_W7_a_permission_that_comes_too_late_is_asked_for_again() -> None:
    """The child reads the clock itself: it may be stopped between the answer of the worker and its body."""
    ours, theirs = socket.socketpair()
    now_ms = SystemClockAndIds().elapsed_ms()
    with ours, theirs:
        context = context_of(theirs)
        ours.sendall(framed(Begin(now_ms)) + framed(Begin(now_ms + 60_000)))
        context.begin()
        asked = ours.recv(1_000)
        ours.sendall(framed(Cancel()))
        with pytest.raises(hf.Cancelled):
            context.begin()
    assert asked.count(b'"ready"') == 2


def test_W7_a_heartbeat_in_a_process_waits_for_the_worker_when_the_lease_is_over() -> None:
    """The event loop of the worker may be blocked: the body goes on only if the worker says that its lease does."""
    ours, theirs = socket.socketpair()
    now_ms = SystemClockAndIds().elapsed_ms()

    def answer() -> None:
        for until_ms in (now_ms + 60_000, now_ms + 60_000, now_ms):
            assert ours.recv(1_000)
            ours.sendall(framed(Begin(until_ms)))

    with ours, theirs:
        ours.settimeout(5)
        worker = threading.Thread(target=answer, daemon=True)
        worker.start()
        context = context_of(theirs)
        context.begin()
        context._until_ms = now_ms
        context.heartbeat(None)  # the lease was renewed meanwhile
        context._until_ms = now_ms
        with pytest.raises(hf.Cancelled):
            context.heartbeat(None)
        worker.join()


def test_W7_the_worker_answers_every_heartbeat_of_a_process_with_its_lease() -> None:
    said = framed(Ready()) + framed(BodyHeartbeat()) + framed(BodyResult(msgspec.Raw(b"1")))
    child, body = MagicMock(), MagicMock()
    body.lease_left_ms.return_value = 60_000

    async def scenario() -> None:
        child.reader = asyncio.StreamReader()
        child.reader.feed_data(said)
        assert isinstance(await _answer(child, body), BodyResult)

    asyncio.run(scenario())
    begins = [call.args[0] for call in child.send.call_args_list]
    assert [type(begin) for begin in begins] == [Begin, Begin]
    assert begins[1].until_ms > SystemClockAndIds().elapsed_ms()


def test_A6_a_heartbeat_in_a_child_whose_worker_is_gone_raises_Cancelled() -> None:
    ours, theirs = socket.socketpair()
    with theirs:
        context = context_of(theirs)
        before = context.info.is_cancelled
        ours.close()
        assert (before, context.info.is_cancelled) == (False, True)
        with pytest.raises(hf.Cancelled, match="attempt 1 of body of instance it was cancelled"):
            context.heartbeat(None)


@pytest.mark.parametrize("name", ["goes_on_until_cancelled", "does_not_listen"])
def test_A6_a_body_in_a_process_learns_that_it_was_cancelled_and_is_killed_after_a_grace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    file = tmp_path / "learned"
    if name == "does_not_listen":
        monkeypatch.setattr(runtime_attempts, "GRACE_SECONDS", 0.05)

    async def run() -> list[str]:
        async with hf.Engine(":memory:", modules=[bodies]) as engine:
            handle = await engine.start(bodies.give_up, name, str(file), id="it")
            await until(lambda: file.exists() and file.read_text())
            await handle.raise_event("enough", "")
            assert await handle.result(timeout=10) == "gave up"
            worker = worker_of(engine)
            await until(lambda: free_slots(worker) == slot_count(worker))
            await committer_of(worker).drain()
            assert not attempts_of(worker).abandoned
            return [attempt.state for attempt in (await handle.describe()).attempts]

    assert asyncio.run(asyncio.wait_for(run(), 30)) == ["CANCELLED"]
    if name == "does_not_listen":
        with pytest.raises(ProcessLookupError):
            os.kill(int(file.read_text()), 0)
    else:
        assert file.read_text() == "attempt 1 of goes_on_until_cancelled of instance it was cancelled"


UNGUARDED = """
import asyncio
import holdfast as hf

@hf.activity(process=True)
def crunch(number: int) -> int:
    return 2 * number

@hf.workflow
async def w() -> int:
    return await crunch(1000)

async def main() -> None:
    async with hf.Engine("p.db", workflows=[w], activities=[crunch]) as engine:
        print(await engine.run(w, id="x"))

{last}
"""


def run_program(folder: Path, last: str) -> subprocess.CompletedProcess[str]:
    (folder / "program.py").write_text(UNGUARDED.format(last=last), encoding="utf-8")
    command = [sys.executable, "program.py"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=30)


def test_a_program_without_a_guard_fails_with_what_to_write_instead_of_hanging(tmp_path: Path) -> None:
    done = run_program(tmp_path, "asyncio.run(main())")
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert "program.py cannot be imported by the process of an activity: its import starts an engine" in last
    assert last.endswith('if __name__ == "__main__": asyncio.run(main())')
    assert "attempt 2" not in done.stderr, "another attempt would fail alike"


def test_a_program_with_a_guard_runs_its_activities_in_processes(tmp_path: Path) -> None:
    done = run_program(tmp_path, 'if __name__ == "__main__":\n    asyncio.run(main())')
    assert (done.returncode, done.stdout) == (0, "2000\n"), done.stderr
