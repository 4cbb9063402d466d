"""The guard names the line of a mistake, lets the innocent pass, and leaves no trace outside a turn."""

import cProfile
import inspect
import linecache
import sys
import threading
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from tests.unit.replay import mistakes
from tests.unit.replay.driver import RecordingHost

from holdfast.errors import ForbiddenInWorkflow
from holdfast.replay.guard import Guard, GuardedTurn
from holdfast.replay.loop.event_loop import WorkflowLoop

Workflow = Callable[[], Coroutine[Any, Any, Any]]


def run_guarded(workflow: Workflow, *, strict: bool, guard: Guard | None = None) -> tuple[Any, GuardedTurn]:
    loop = WorkflowLoop(RecordingHost())
    main = loop.create_task(workflow())
    with (guard or Guard()).turn(strict=strict) as turn:
        loop.run_until_idle()
    error = main.exception()
    loop.evict()
    return (main.result() if error is None else error), turn


def line_of(workflow: Workflow) -> int:
    lines, first = inspect.getsourcelines(workflow)
    return first + next(number for number, line in enumerate(lines) if "# MISTAKE" in line)


def assert_names_the_line(error: object, workflow: Workflow) -> None:
    assert isinstance(error, ForbiddenInWorkflow), error
    assert f"{mistakes.__file__}:{line_of(workflow)}" in str(error)


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("workflow", mistakes.EVENTS)
def test_touching_the_outside_is_found_in_every_turn(workflow: Workflow, strict: bool) -> None:
    error, turn = run_guarded(workflow, strict=strict)
    assert_names_the_line(error, workflow)
    assert turn.findings == [error]


@pytest.mark.parametrize("workflow", mistakes.CALLS)
def test_clocks_and_randomness_are_found_in_strict_turns(workflow: Workflow) -> None:
    error, _ = run_guarded(workflow, strict=True)
    assert_names_the_line(error, workflow)
    assert "Use " in str(error)
    result, turn = run_guarded(workflow, strict=False)
    assert result is None
    assert turn.findings == []


@pytest.mark.parametrize("workflow", [mistakes.sleeps, mistakes.starts_a_thread])
def test_sleeping_and_threads_are_found_in_strict_turns_on_every_python(workflow: Workflow) -> None:
    error, _ = run_guarded(workflow, strict=True)
    assert_names_the_line(error, workflow)


def test_the_message_names_the_call_and_its_replacement() -> None:
    error, _ = run_guarded(mistakes.sleeps, strict=True)
    assert "called time.sleep (" in str(error)
    assert "in sleeps)" in str(error)
    assert "asyncio.sleep" in str(error)


def test_imports_tracebacks_time_zones_and_own_generators_are_innocent() -> None:
    sys.modules.pop("wsgiref.util", None)
    linecache.clearcache()
    result, turn = run_guarded(mistakes.innocent, strict=True)
    assert isinstance(result, list), result
    assert turn.findings == []


def test_code_that_an_import_runs_is_innocent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "reads_at_import.py").write_text("import time\nopen(__file__).close()\nSTAMP = time.time()\n")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])

    async def workflow() -> float:
        return float(__import__("reads_at_import").STAMP)

    result, _ = run_guarded(workflow, strict=True)
    assert isinstance(result, float), result


def test_a_mistake_that_the_workflow_caught_is_kept_for_the_driver() -> None:
    result, turn = run_guarded(mistakes.catches, strict=True)
    assert result == "caught"
    assert [type(finding) for finding in turn.findings] == [ForbiddenInWorkflow]


def _module(folder: Path, name: str, text: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    folder.mkdir(parents=True)
    (folder / f"{name}.py").write_text(text)
    monkeypatch.setattr(sys, "path", [str(folder), *sys.path])
    module = __import__(name)
    monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, name, module)
    return module


STAMPED = """
import time
from dataclasses import dataclass, field

@dataclass
class Stamped:
    at: int = field(default_factory=time.perf_counter_ns)

class ByHand:
    pass

globals_of_its_own = {"now": time.perf_counter_ns}
exec("def __init__(self):\\n    self.at = now()", globals_of_its_own)
ByHand.__init__ = globals_of_its_own["__init__"]
"""


def test_generated_code_of_a_library_is_the_library_s(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The `__init__` of a dataclass is in the file `<string>`, and so is what attrs generates."""
    library = _module(tmp_path / "site-packages", "hf_test_library", STAMPED, monkeypatch)

    async def workflow() -> list[int]:
        return [library.Stamped().at, library.ByHand().at]

    result, turn = run_guarded(workflow, strict=True)
    assert isinstance(result, list), result
    assert turn.findings == []


@pytest.mark.parametrize("name", ["Stamped", "ByHand"])
def test_generated_code_of_a_program_is_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    program = _module(tmp_path / "program", "hf_test_program", STAMPED, monkeypatch)

    async def workflow() -> int:
        return int(getattr(program, name)().at)

    result, _ = run_guarded(workflow, strict=True)
    assert isinstance(result, ForbiddenInWorkflow), result
    assert f"{__file__}:" in str(result), "the line that made it, and not one of a text that is in no file"


def test_outside_a_turn_and_on_other_threads_nothing_is_forbidden() -> None:
    guard = Guard()
    outcomes: list[object] = []

    def work() -> None:
        Path(__file__).read_bytes()
        time.sleep(0)
        outcomes.append("worked")

    def work_when_told() -> None:
        begin.wait()
        work()

    begin = threading.Event()
    thread = threading.Thread(target=work_when_told)
    thread.start()
    with guard.turn(strict=True):
        begin.set()
        thread.join()
    work()
    assert outcomes == ["worked", "worked"]


def test_the_profile_function_of_before_comes_back_on_every_way_out() -> None:
    def profile(_frame: object, _event: str, _argument: object) -> None:
        pass

    before = sys.getprofile()
    sys.setprofile(profile)
    try:
        run_guarded(mistakes.asks_for_the_time, strict=True)
        assert sys.getprofile() is profile
        with pytest.raises(KeyError), Guard().turn(strict=True):
            raise KeyError
        assert sys.getprofile() is profile
    finally:
        sys.setprofile(before)


def test_turns_can_be_nested() -> None:
    guard = Guard()
    with guard.turn() as outer:
        with guard.turn():
            pass
        error, _ = run_guarded(mistakes.opens, strict=False, guard=guard)
        assert isinstance(error, ForbiddenInWorkflow)
    assert outer.findings == []
    open(__file__).close()  # noqa: PTH123 - no turn, no guard


def test_installed_packages_can_be_named_as_workflow_code() -> None:
    installed = str(Path(sys.prefix) / "lib" / "site-packages" / "shop")
    assert not Guard().is_user_file(installed + "/flows.py")
    assert Guard([installed]).is_user_file(installed + "/flows.py")
    assert Guard().is_user_file(__file__)
    assert not Guard().is_user_file(threading.__file__)
    assert not Guard().is_user_file("<frozen importlib._bootstrap>")


def test_a_profiler_in_c_stays_and_does_not_stop_the_workflow() -> None:
    profiler = cProfile.Profile()
    profiler.enable()
    try:
        with Guard().turn(strict=True):
            found: list[object] = [sys.getprofile()]
        found.append(sys.getprofile())
    finally:
        profiler.disable()
    assert found == [profiler, profiler]
