"""The processes that are forked for tests are real ones, of which nothing is left over."""

import os
import select
import signal
import subprocess
import sys

import pytest
from tests.forking.processes import ROOT, Process, program, run

SAMPLES = "tests.forking.samples"
LIMIT_SECONDS = 20.0
pytestmark = pytest.mark.slow


def has_ended(process: int) -> bool:
    """Whether a process that is not ours ends in time."""
    try:
        watch = os.pidfd_open(process)
    except ProcessLookupError:
        return True
    try:
        news = select.poll()
        news.register(watch, select.POLLIN)
        return bool(news.poll(LIMIT_SECONDS * 1_000))
    finally:
        os.close(watch)


def test_a_process_gets_its_words_and_environment_and_says_something() -> None:
    with Process(f"{SAMPLES}:echo", "a", 1, env={"VARIABLE": "there"}) as process:
        assert process.poll() is None
        assert process.communicate("hello\n", timeout=LIMIT_SECONDS) == ("['a', '1'] hello there\n", "")
        assert process.returncode == 0


def test_each_is_a_new_process_that_shares_no_thread_and_no_file_with_another() -> None:
    with Process(f"{SAMPLES}:hang"):
        first, second = (run(f"{SAMPLES}:look").said.split(maxsplit=1) for _ in range(2))
    assert first[0] != second[0]
    assert first[1] == second[1] == "[] 1 [0, 1, 2, 3]\n"


def test_what_is_not_caught_is_shown_and_ends_the_process_with_1() -> None:
    outcome = run(f"{SAMPLES}:fail")
    assert outcome.code == 1
    assert "ValueError: on purpose" in outcome.complaints
    missing = run("tests.forking.nothing:main")
    assert missing.code == 1
    assert "ModuleNotFoundError" in missing.complaints


def test_a_process_that_hangs_is_killed_and_that_is_said() -> None:
    with Process(f"{SAMPLES}:hang") as process:
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.01)
        process.stderr.readline()
        with pytest.raises(AssertionError, match="was killed after"):
            process.communicate(timeout=0.01)
        assert process.returncode == -signal.SIGKILL


def test_leaving_a_process_kills_it() -> None:
    with Process(f"{SAMPLES}:hang") as process:
        assert process.poll() is None
    assert process.returncode == -signal.SIGKILL
    assert has_ended(process.pid)


def test_a_program_whose_test_fails_is_killed() -> None:
    with pytest.raises(ZeroDivisionError), program([sys.executable, "-m", SAMPLES], cwd=ROOT) as process:
        raise ZeroDivisionError
    assert process.returncode == -signal.SIGKILL


def test_tests_that_run_in_the_background_hear_an_interrupt() -> None:
    """A shell starts a background job with SIGINT ignored, and programs inherit that."""
    print_handlers = (
        "import signal, sys; signal.signal(signal.SIGINT, signal.SIG_IGN); import tests.conftest;"
        "print(signal.getsignal(signal.SIGINT) is signal.default_int_handler)"
    )
    done = subprocess.run(
        [sys.executable, "-c", print_handlers], cwd=ROOT, capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout == "True\n"


def test_nothing_is_left_when_the_test_process_is_killed() -> None:
    command = [sys.executable, "-m", SAMPLES]
    with program(command, cwd=ROOT) as tests:
        assert tests.stdout is not None
        child, helper = map(int, tests.stdout.readline().split())
        tests.kill()
    assert has_ended(child)
    assert has_ended(helper)
