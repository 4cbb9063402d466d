"""Flows in the commands that show any instance: their keys in lists, their events in words, the names of digits."""

import json
import re
from pathlib import Path

import pytest
from tests.unit.cli.commands import Command, sql
from tests.unit.cli.flow_files import write_files

ROUNDS = """flow: rounds
activities:
  start: {trigger: true}
  many: {run: tasks.fox, each: "[1, 2, 3]", limit: 2, after: start}
  bad: {run: tasks.fox, input: ["1 / 0"], after: many}
  saved: {run: tasks.fox, after: {bad: {catch: ExpressionError}},
          input: ["saved.output == null ? 0 : saved.output + 1"]}
  again: {cycle: saved, after: saved, when: saved.output < 1, delay: 1ms}
"""
"""Its key: again, bad, many, saved, start."""


@pytest.fixture
def foxes(holdfast: Command) -> Command:
    write_files(holdfast.folder)
    (holdfast.folder / "rounds.yaml").write_text(ROUNDS, encoding="utf-8")
    return holdfast


@pytest.fixture
def filled(foxes: Command) -> Command:
    """Instances of flows and of code."""
    assert foxes("run", "tasks.py:flow", "--input", '{"speed": 5}', "--id", "awake", "--json").code == 0
    assert foxes("run", "tasks.py:pack", "--input", '["a"]', "--id", "code", "--json").code == 0
    return foxes


def test_K1_lists_have_the_keys_of_flows(filled: Command) -> None:
    header, code, awake = filled("list").out.splitlines()
    assert header.split()[-2:] == ["took", "key"]
    assert awake.split()[-1] == "3666633"
    assert code.split()[-1] == "ms", "code has no key that is stored"
    fields = {each["id"]: each["collation_key"] for each in json.loads(filled("list", "--json").out)}
    assert fields == {"awake": "366663300000000", "code": None}
    assert "key" not in filled("list", "--workflow", "pack").out


def test_a_key_that_is_damaged_is_listed_as_it_is(filled: Command) -> None:
    sql(filled.folder / "holdfast.db", "UPDATE instances SET collation_key = 'x\x1b6' WHERE id = 'awake'")
    listed = filled("list")
    assert listed.code == 0
    assert "x\\x1b6" in listed.out


def test_K1_whoever_watches_a_flow_sees_its_key(filled: Command) -> None:
    assert re.search(r"COMPLETED  turn \d+  3666633  workflow completed", filled("watch", "awake").out)
    assert json.loads(filled("watch", "awake", "--json").out)["collation_key"] == "366663300000000"
    assert json.loads(filled("watch", "code", "--json").out)["collation_key"] is None


def test_the_events_of_flows_are_said_in_words(foxes: Command) -> None:
    assert foxes("flow", "run", "rounds.yaml", "--app", "tasks.py", "--id", "it", "--json").code == 0
    out = foxes("history", "it").out
    said = [re.split(r"  +", line.strip())[-2:] for line in out.splitlines()]
    assert ["fan_out_began", "many: 3 items, not all at once"] in said
    assert ["flow_advanced", "start completed, many started"] in said
    assert ["node_completed", "many: [1,2,3]"] in said
    why = "ExpressionError: node 'bad', line 5, of flow 'rounds': 1 / 0: divide by zero"
    assert ["node_failed", f"bad: {why}"] in said
    assert any("bad errored" in text and "the failure of bad was caught" in text for _, text in said)
    assert ["cycle_restarted", "again: saved and the nodes after it run again; round 1"] in said
    assert re.search(r"timer_started +timer=0  node=again  due=\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC", out)
    assert "{" not in out.replace("input={}", ""), "nothing is left of raw fields"


def test_a_failure_in_a_history_is_its_type_and_its_message(foxes: Command) -> None:
    foxes("run", "tasks.py:flow", "--input", '{"speed": -2}', "--id", "tired", "--json")
    assert re.search(
        r"activity_failed +activity=1  failure=TooTired: at -2  attempt=2\n", foxes("history", "tired").out
    )


def test_K6_the_digits_of_an_instance_in_the_store_have_their_names(filled: Command) -> None:
    assert filled("explain", "366663300000000").out.splitlines()[:4] == [
        "366663300000000  collation key of 7 activities of the flow fox",
        "3  ate     skipped",
        "6  brown   completed",
        "6  fox     completed",
    ]
    assert filled("run", "tasks.py:family", "--id", "all", "--json").code == 0
    composite = json.loads(filled("show", "all", "--json").out)["composite_key"]
    fields = json.loads(filled("explain", composite, "--json").out)
    assert [each["activity"] for each in fields["activities"]] == ["again", "count", "cubs", "elder", "start"]
    (elder,) = fields["activities"][3]["children"]
    assert elder["activities"][0]["activity"] == "ate", "children that are flows have names, too"
    code, _ = fields["activities"][2]["children"]
    assert code["activities"][0]["activity"] == "activity 1"


def test_digits_that_no_instance_has_are_explained_without_names_or_by_the_flow(filled: Command) -> None:
    assert "activity 1  paused" in filled("explain", "5663663").out
    assert "5  ate     paused" in filled("explain", "5663663", "--flow", "fox").out
    Path("holdfast.db").rename("elsewhere.db")
    assert "5  ate     paused" in filled("explain", "5663663", "--flow", "fox", "--store", "elsewhere.db").out
    assert "5  ate     paused" in filled("explain", "5663663", "--flow", "fox.yaml").out
    assert "activity 1  skipped" in filled("explain", "3666633").out, "there is no store, and none is needed"
    assert "3  ate     skipped" in filled("explain", "3666633", "--store", "elsewhere.db").out


def test_digits_that_two_flows_have_are_not_guessed(filled: Command) -> None:
    other = (filled.folder / "fox.yaml").read_text(encoding="utf-8").replace("flow: fox", "flow: vixen")
    (filled.folder / "vixen.yaml").write_text(other.replace("wept:", "wet:"), encoding="utf-8")
    filled("flow", "run", "vixen.yaml", "--app", "tasks.py", "--input", '{"speed": 5}', "--id", "other", "--json")
    assert "activity 1  skipped" in filled("explain", "3666633").out
    assert "3  wet     skipped" in filled("explain", "3666633", "--flow", "vixen").out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["3666633", "--flow", "nobody"], "the store has no instance of a flow 'nobody'"),
        (["3666633", "--flow", "pack"], "the store has no instance of a flow 'pack'"),
        (["36", "--flow", "fox"], "a key of 7 activities has 15 digits; '36' has 2"),
        (["3666633", "--flow", "none.yaml"], "none.yaml: it cannot be read"),
        (["3666633", "--flow", "fox", "--activities", "a"], "give one of them"),
        (["888000001000001", "--flow", "fox"], "is a ledger, not a key: leave out --flow"),
        (["3666633", "--store", "none.db"], "there is no store at none.db"),
    ],
)
def test_what_cannot_be_explained_is_one_sentence(filled: Command, arguments: list[str], said: str) -> None:
    assert said in filled.refused("explain", *arguments)


def test_json_about_a_flow_is_that_of_every_command(foxes: Command) -> None:
    (foxes.folder / "odd\x9b[31m.yaml").write_text("flow: f\nactivities: {a: {trigger: true}}\n", encoding="utf-8")
    done = foxes("flow", "check", "odd\x9b[31m.yaml", "--json")
    assert done.code == 0
    assert "\x9b" not in done.out
    assert json.loads(done.out)["file"] == "odd\x9b[31m.yaml"


def test_a_flow_without_activities_runs_without_code(foxes: Command) -> None:
    text = "flow: short\nactivities:\n  go: {trigger: true}\n  rest: {wait: {timer: 1ms}, after: go}\n"
    (foxes.folder / "short.yaml").write_text(text, encoding="utf-8")
    assert "completed after" in foxes("flow", "run", "short.yaml", "--id", "it").out
    assert "'brown' runs 'tasks.brown': name the code that has it with --app" in foxes.refused(
        "flow", "run", "fox.yaml", "--input", '{"speed": 5}'
    )


def test_a_wrong_input_is_told_before_what_else_may_be_missing(foxes: Command) -> None:
    text = "flow: lonely\nactivities:\n  go: {trigger: true}\n  it: {flow: nobody, after: go}\n"
    (foxes.folder / "lonely.yaml").write_text(text, encoding="utf-8")
    refused = foxes.refused("flow", "run", "lonely.yaml", "--input", "[1, 2]")
    assert refused == "holdfast: flow 'lonely' takes one input, not 2\n"


def test_what_came_of_a_child_stands_behind_its_id(filled: Command) -> None:
    text = """flow: two
activities:
  go: {trigger: true}
  good: {flow: fox, id: "'own'", input: {speed: "7"}, after: go}
  bad: {flow: fox, id: "'awake'", input: {speed: "7"}, after: go}
"""
    (filled.folder / "two.yaml").write_text(text, encoding="utf-8")
    options = ("--app", "tasks.py", "--with", "fox.yaml")
    assert filled("flow", "run", "two.yaml", *options, "--id", "it").code == 1
    out = filled("show", "it").out
    assert re.search(r"6  completed +good +flow fox +COMPLETED .*  own  7\n", out)
    assert re.search(r"7  errored +bad +flow fox +child failed +awake  InstanceConflict: the id 'awake' is taken", out)


def test_a_child_that_never_was_is_not_waited_for_by_what_has_ended(foxes: Command) -> None:
    text = """flow: gone
activities:
  go: {trigger: true}
  kid: {flow: fox, id: flow.id, after: go}
  stop: {interrupt: self, after: go}
"""
    (foxes.folder / "gone.yaml").write_text(text, encoding="utf-8")
    assert foxes("flow", "run", "gone.yaml", "--id", "it").code == 1
    assert re.search(r"7  errored +kid +flow fox +child cancelled", foxes("show", "it").out)
    assert foxes("verify").code == 0
