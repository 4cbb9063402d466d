"""``holdfast flow run`` and ``flow draw --instance``."""

import json
import re

import pytest
from tests.unit.cli.commands import Command
from tests.unit.cli.flow_files import FOX, write_files

ALONE = """flow: alone
activities:
  start: {trigger: true}
  elder: {flow: cub, after: start}
"""
CUB = """flow: cub
activities:
  start: {trigger: true}
  count: {run: tasks.brown, after: start}
output: count.output
"""


@pytest.fixture
def foxes(holdfast: Command) -> Command:
    write_files(holdfast.folder)
    (holdfast.folder / "alone.yaml").write_text(ALONE, encoding="utf-8")
    (holdfast.folder / "cub.yaml").write_text(CUB, encoding="utf-8")
    return holdfast


def run(speed: int, *more: str) -> tuple[str, ...]:
    return "flow", "run", "fox.yaml", "--app", "tasks.py", "--input", json.dumps({"speed": speed}), *more


def test_a_flow_runs_from_its_file_with_its_steps_on_screen(foxes: Command) -> None:
    done = foxes(*run(5, "--id", "awake"))
    assert done.code == 0
    lines = done.out.splitlines()
    assert lines[0] == "fox awake in holdfast.db"
    assert re.search(r"fox +\d+ ms", done.out)
    assert re.search(r"jumped \(jump\) +\d+ ms", done.out)
    assert lines[-1] == "result 5"
    again = foxes("flow", "run", "fox.yaml", "--app", "tasks.py", "--id", "awake")
    assert again.out.splitlines()[0] == "fox awake in holdfast.db (ended before)"
    assert foxes(*run(5, "--id", "awake", "--json")).out == "5\n"


def test_what_is_wrong_with_it_is_told_before_a_store_is_made(foxes: Command) -> None:
    (foxes.folder / "bad.yaml").write_text(FOX.replace("tasks.jump", "tasks.hop"), encoding="utf-8")
    assert 'bad.yaml:7: jumped: there is no activity "tasks.hop"' in foxes.refused(
        "flow", "run", "bad.yaml", "--app", "tasks.py", "--input", '{"speed": 1}'
    )
    assert "speed is 'high'" in foxes.refused(
        "flow", "run", "fox.yaml", "--app", "tasks.py", "--input", '{"speed": "high"}'
    )
    assert not list(foxes.folder.glob("*.db*"))


def test_flows_that_it_starts_come_from_files_of_their_own(foxes: Command) -> None:
    done = foxes("flow", "run", "alone.yaml", "--app", "tasks.py", "--with", "cub.yaml", "--id", "it", "--json")
    assert (done.code, done.err) == (0, "")
    assert json.loads(foxes("show", "it", "--json").out)["composite_key"] == "61" + "66" + "26"


def test_a_child_that_nobody_has_is_told(foxes: Command) -> None:
    foxes("flow", "run", "alone.yaml", "--app", "tasks.py", "--with", "cub.yaml", "--id", "it", "--json")
    done = foxes("flow", "run", "alone.yaml", "--app", "tasks.py", "--id", "it")
    assert "'elder' starts 'cub', which is not loaded here: it waits for a worker that has it" in done.err


def test_K7_a_drawing_has_the_digits_of_an_instance(foxes: Command) -> None:
    foxes(*run(5, "--id", "awake", "--json"))
    svg = foxes("flow", "draw", "fox.yaml", "--instance", "awake").out
    assert svg.startswith("<svg ")
    assert "366663300000000" in svg
    assert "6 completed" in foxes("flow", "draw", "fox.yaml", "--instance", "awake", "--mermaid").out


def test_K6_a_drawing_has_the_keys_of_children(foxes: Command) -> None:
    foxes("flow", "run", "alone.yaml", "--app", "tasks.py", "--with", "cub.yaml", "--id", "it", "--json")
    assert "616626" in foxes("flow", "draw", "alone.yaml", "--instance", "it").out


def test_the_version_that_an_instance_stays_with_is_drawn(foxes: Command) -> None:
    foxes(*run(5, "--id", "awake", "--json"))
    (foxes.folder / "fox.yaml").write_text(FOX.replace("jumped:", "hopped:"), encoding="utf-8")
    done = foxes("flow", "draw", "fox.yaml", "--instance", "awake")
    assert "jumped" in done.out
    assert "hopped" not in done.out
    assert "awake runs on another version of the flow, which is drawn here" in done.err


@pytest.mark.parametrize(
    ("file", "instance", "said"),
    [
        ("fox.yaml", "nobody", "no instance has the id 'nobody'"),
        ("alone.yaml", "awake", "'awake' is an instance of 'fox', not of 'alone'"),
    ],
)
def test_an_instance_that_does_not_fit_is_refused(foxes: Command, file: str, instance: str, said: str) -> None:
    foxes(*run(5, "--id", "awake", "--json"))
    assert said in foxes.refused("flow", "draw", file, "--instance", instance)
