"""The program of an external activity: its result, its failures, and how it is stopped."""

import asyncio
import os
import time
from pathlib import Path

import pytest

from holdfast.cli.program import Command, OutputKind, ProgramError, ProgramRun

LIMIT = 100_000


def run(
    script: str,
    output: OutputKind = OutputKind.JSON,
    *,
    given: bytes = b"[]",
    stop_after: float | None = None,
    responses: list[str] | None = None,
) -> str | None:
    """The result of a script of bash."""

    async def respond(value: str) -> None:
        if responses is not None:
            responses.append(value)

    async def running() -> str | None:
        program = ProgramRun(Command(("bash", "-c", script), output, LIMIT, grace_seconds=0.2), respond)
        if stop_after is not None:
            asyncio.get_running_loop().call_later(stop_after, program.stop)
        async with asyncio.timeout(20):
            return await program.run(given, {"HOLDFAST_CLAIM": "mine"})

    return asyncio.run(running())


def test_the_output_is_one_json_value() -> None:
    assert run("cat", given=b'{"a": 1}') == '{"a": 1}'
    assert run('echo "\\"$HOLDFAST_CLAIM\\""') == '"mine"\n'
    assert run("echo; echo") is None, "no output is no value"


def test_the_output_is_a_text_without_its_last_line_end() -> None:
    assert run("printf 'one\\ntwo\\n\\n'", OutputKind.TEXT) == '"one\\ntwo\\n"'
    assert run("true", OutputKind.TEXT) == '""'


def test_each_line_is_a_response_also_the_last_without_an_end() -> None:
    taken: list[str] = []
    assert run("echo 1; echo; echo '[2, 3]'; printf 4", OutputKind.RESPONSES, responses=taken) is None
    assert taken == ["1", "[2, 3]", "4"]


@pytest.mark.parametrize(
    ("script", "output", "message", "retryable"),
    [
        ("echo oh >&2; echo no >&2; exit 3", OutputKind.JSON, "bash exited with 3: oh\nno", True),
        ("echo 1; exit 1", OutputKind.JSON, "bash exited with 1", True),
        ("kill -SEGV $$", OutputKind.JSON, "bash was ended by SIGSEGV", True),
        ("echo {", OutputKind.JSON, "standard output of bash is not a JSON value: ", False),
        ('echo \'{"a": 1, "a": 2}\'', OutputKind.JSON, "standard output of bash is not a JSON value: ", False),
        ("printf '\\377\\376'", OutputKind.TEXT, "standard output of bash is not text", False),
        ("echo 1; echo no", OutputKind.RESPONSES, "a line of standard output of bash is not a JSON value", False),
        ("yes 1", OutputKind.JSON, "the standard output of bash is larger than the payload limit of 100,000", False),
        ("yes | tr -d '\\n'", OutputKind.RESPONSES, "a line of standard output of bash is larger than", False),
    ],
)
def test_a_program_without_a_result_is_an_error(script: str, output: OutputKind, message: str, retryable: bool) -> None:
    with pytest.raises(ProgramError) as caught:
        run(script, output)
    assert str(caught.value).startswith(message)
    assert caught.value.retryable is retryable


def test_a_failure_has_the_tail_of_a_long_standard_error() -> None:
    with pytest.raises(ProgramError) as caught:
        run("yes nothing | head -c 1000000 >&2; echo the end >&2; exit 1")
    assert str(caught.value).endswith("nothing\nthe end")
    assert len(str(caught.value)) < 5_000


def test_a_program_that_cannot_be_started_is_an_error() -> None:
    async def respond(_: str) -> None: ...

    program = ProgramRun(Command(("/no/such/program",), OutputKind.JSON, LIMIT, 1.0), respond)
    with pytest.raises(ProgramError, match="cannot be started: No such file"):
        asyncio.run(program.run(b"", {}))


def test_a_stop_ends_the_processes_of_the_program(tmp_path: Path) -> None:
    began = time.monotonic()  # noqa: TID251 - a bound for real processes
    with pytest.raises(ProgramError, match="was ended by SIGTERM"):
        run("sleep 60 & exec sleep 60", stop_after=0.2)
    with pytest.raises(ProgramError, match="was ended by SIGKILL"):
        run(f"trap '' TERM; echo $$ > {tmp_path}/pid; while true; do sleep 0.05; done", stop_after=0.3)
    assert time.monotonic() - began < 10  # noqa: TID251
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text("utf-8")), 0)


def test_a_process_that_the_program_left_behind_does_not_hold_its_end() -> None:
    began = time.monotonic()  # noqa: TID251 - a bound for real processes
    assert run("sleep 60 & echo 1") == "1\n"
    assert time.monotonic() - began < 10  # noqa: TID251


def test_an_error_while_a_response_is_sent_stops_the_program() -> None:
    async def respond(_: str) -> None:
        raise OSError("the store is gone")

    async def running() -> None:
        program = ProgramRun(Command(("bash", "-c", "yes 1"), OutputKind.RESPONSES, LIMIT, 0.2), respond)
        async with asyncio.timeout(20):
            await program.run(b"", {})

    with pytest.raises(OSError, match="the store is gone"):
        asyncio.run(running())
