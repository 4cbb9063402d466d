"""`hf.CommandLauncher`: the environment, the input and the life of the processes that it starts (C4)."""

import asyncio
import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import holdfast as hf
from holdfast.errors import InvalidOption

TASK = hf.LaunchTask(
    activity_exec_id="e" * 32,
    activity_name="train",
    workflow_exec_id="it",
    workflow_name="learn",
    queue="gpu",
    attempt=1,
    idempotency_key="it/1/1/0",
    input='{"model": "bert"}',
    claim="c" * 32,
)
WRITES = (
    "import json, os, sys; given = json.load(sys.stdin); "
    "out = dict(env=dict(os.environ), given=given, session=os.getsid(0), pid=os.getpid()); "
    "open(sys.argv[1] + '.part', 'w').write(json.dumps(out)); os.rename(sys.argv[1] + '.part', sys.argv[1])"
)
WAITS = "import os, sys, time; open(sys.argv[1], 'w').write(str(os.getpid())); time.sleep(600)"
LONGEST_SECONDS = 30.0


async def appears(path: Path) -> str:
    async with asyncio.timeout(LONGEST_SECONDS):
        while not path.exists() or not path.read_text():  # noqa: ASYNC110, ASYNC240 - a file of another process
            await asyncio.sleep(0.01)
    return path.read_text()  # noqa: ASYNC240


def launched(path: Path, **options: Any) -> dict[str, Any]:
    """What a process has found."""

    async def scenario() -> str:
        await hf.CommandLauncher([sys.executable, "-c", WRITES, str(path)], **options).launch(TASK)
        return await appears(path)

    found: dict[str, Any] = json.loads(asyncio.run(scenario()))
    return found


def of_holdfast(found: dict[str, Any]) -> dict[str, str]:
    return {name: value for name, value in found["env"].items() if name.startswith("HOLDFAST_")}


def test_C4_a_process_has_the_ids_the_claim_and_the_input(tmp_path: Path) -> None:
    found = launched(tmp_path / "found")
    assert of_holdfast(found) == TASK.environment
    assert found["given"] == {"model": "bert"}
    assert found["session"] == found["pid"], "a session of its own: no signal for the worker's reaches it"
    assert "PATH" in found["env"]


@pytest.mark.parametrize("variable", ["HOLDFAST_STORE", "HOLDFAST_CLAIM", "HOLDFAST_SECRET"])
def test_C4_no_variable_of_holdfast_is_inherited(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    """The store of the worker, above all: its URL has the permissions of the worker."""
    monkeypatch.setenv(variable, "postgresql://worker:secret@db/shop")
    assert of_holdfast(launched(tmp_path / "found")) == TASK.environment
    assert of_holdfast(launched(tmp_path / "given", env={**os.environ})) == TASK.environment


def test_C4_a_process_has_the_store_that_the_launcher_was_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_STORE", "postgresql://worker:secret@db/shop")
    url = "postgresql://executor@db/shop"
    found = launched(tmp_path / "found", store=url, env={"COLOUR": "red"}, cwd=tmp_path)
    assert of_holdfast(found) == {**TASK.environment, "HOLDFAST_STORE": url}
    assert found["env"]["COLOUR"] == "red"
    assert "PATH" not in found["env"], "env= replaces the inherited environment"


@pytest.mark.parametrize("command", [["holdfast-has-no-such-program"], ["/"]])
def test_C4_a_program_that_cannot_be_started_is_an_error(command: list[str]) -> None:
    with pytest.raises(OSError, match=r"No such file|Permission denied"):
        asyncio.run(hf.CommandLauncher(command).launch(TASK))


def test_C4_the_processes_that_run_at_once_are_bounded_and_collected(tmp_path: Path) -> None:
    """A process that has ended leaves no zombie, and makes room for another."""

    async def scenario() -> None:
        paths = iter([tmp_path / "first", tmp_path / "second"])
        launcher = hf.CommandLauncher([sys.executable, "-c", WAITS, str(next(paths))], max_processes=1)
        assert launcher.room == 1
        await launcher.launch(TASK)
        assert launcher.room == 0
        pid = int(await appears(tmp_path / "first"))
        os.kill(pid, signal.SIGKILL)
        async with asyncio.timeout(LONGEST_SECONDS):
            while launcher.room == 0:  # noqa: ASYNC110 - the system tells no other way
                await asyncio.sleep(0.01)
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)

    asyncio.run(scenario())
    assert hf.CommandLauncher(["true"]).room is None


def test_C4_a_process_outlives_its_launcher_and_the_event_loop(tmp_path: Path) -> None:
    async def scenario() -> int:
        await hf.CommandLauncher([sys.executable, "-c", WAITS, str(tmp_path / "pid")]).launch(TASK)
        return int(await appears(tmp_path / "pid"))

    pid = asyncio.run(scenario())
    os.kill(pid, 0)
    os.kill(pid, signal.SIGKILL)
    until = time.monotonic() + LONGEST_SECONDS  # noqa: TID251 - a bound for a real process
    while os.waitpid(pid, os.WNOHANG)[0] == 0:
        assert time.monotonic() < until  # noqa: TID251


@pytest.mark.parametrize(("command", "options"), [([], {}), ("train.sh", {}), (["true"], {"max_processes": 0})])
def test_C4_a_wrong_option_is_refused(command: Any, options: dict[str, Any]) -> None:
    with pytest.raises(InvalidOption):
        hf.CommandLauncher(command, **options)
