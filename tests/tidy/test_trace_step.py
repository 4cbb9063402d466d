"""The tool that traces one step, and the page that it writes."""

import re

import pytest
from tools.citations import ROOT
from tools.trace_step import LOOP, Call, Crossing, counts, crossings, mermaid, trace, tree

CALLS = [
    Call("main", 1, "runtime/turns/turn_taker", "TurnTaker.take_turns"),
    Call("main", 2, "runtime/turns/live_instance", "LiveInstance.apply"),
    Call("main", 3, "replay/run", "WorkflowRun.apply"),
    Call("main", 3, "runtime/platform", "SystemClockAndIds.now_ms"),
    Call("writer", 5, "storage/sqlite/writer", "SqliteWriter.write"),
    Call("writer", 6, "storage/relational/apply/turns", "apply_turn"),
    Call("writer", 7, "storage/sqlite/writer", "SqliteTransaction.update"),
    Call("writer", 7, "storage/sqlite/writer", "SqliteTransaction.update"),
]


def test_calls_between_folders_have_their_callers() -> None:
    assert crossings(CALLS) == [
        Crossing(LOOP, "runtime/turns", "TurnTaker.take_turns"),
        Crossing("runtime/turns", "replay", "WorkflowRun.apply"),
        Crossing(LOOP, "storage/sqlite", "SqliteWriter.write"),
        Crossing("storage/sqlite", "storage/relational/apply", "apply_turn"),
        Crossing("storage/relational/apply", "storage/sqlite", "SqliteTransaction.update"),
        Crossing("storage/relational/apply", "storage/sqlite", "SqliteTransaction.update"),
    ]
    assert counts(CALLS) == (8, 6, 3)
    assert tree(CALLS).splitlines()[1] == "  runtime/turns/live_instance: LiveInstance.apply"


def test_equal_calls_in_a_row_are_one_arrow() -> None:
    assert mermaid(CALLS).splitlines()[-1] == "    p4->>p3: SqliteTransaction.update (2 times)"


@pytest.mark.slow
@pytest.mark.parametrize(("flow", "run"), [(False, "replay/run"), (True, "flows/run")])
def test_a_step_is_traced_from_one_body_to_the_next(flow: bool, run: str) -> None:
    modules = [call.module for call in trace(flow=flow)]
    assert modules[0].startswith("runtime/attempts")
    assert {run, "runtime/committer", "storage/sqlite/writer"} <= set(modules)


def test_the_page_of_steps_names_folders_that_exist() -> None:
    page = (ROOT / "docs" / "reference" / "steps.md").read_text("utf-8")
    folders = set(re.findall(r"participant \w+ as (.+)", page)) - {LOOP}
    assert folders
    missing = [folder for folder in folders if not (ROOT / "src" / "holdfast" / folder).exists()]
    assert not missing, "run `make docs`"
