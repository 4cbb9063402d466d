"""``holdfast verify`` of flows: their keys are added up again, and no digit can say what its node did not do."""

import asyncio
import json
import shutil
from pathlib import Path

import pytest
from tests.scenarios.flow_damage import FLOW_DAMAGE, make_flows
from tests.scenarios.flow_stage import played, staged
from tests.unit.cli.commands import sql

import holdfast as hf
from holdfast.audit.auditor import audit, inspect
from holdfast.audit.problems import Rule
from holdfast.core.collation import STATUS, padded
from holdfast.core.flow.definition import decode_definition


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("flows") / "flows.db"
    asyncio.run(make_flows(path))
    sql(path, "PRAGMA wal_checkpoint(TRUNCATE)")
    return path


@pytest.fixture
def store(sound: Path, tmp_path: Path) -> Path:
    copy = tmp_path / "copy.db"
    shutil.copy(sound, copy)
    return copy


def keys(store: Path) -> dict[str, tuple[str, str]]:
    return {name: (state, key) for name, state, key in sql(store, "SELECT id, state, collation_key FROM instances")}


def test_K5_flows_in_every_phase_are_sound(sound: Path) -> None:
    assert inspect(sound).problems == ()
    found = keys(sound)
    assert found["awake"] == ("COMPLETED", "366663000000000")
    assert found["bad"] == ("FAILED", "367363000000000")
    assert found["cut"] == ("FAILED", "776300000000000")
    assert found["caught"] == ("COMPLETED", "674366600000000")
    assert found["hungry"] == ("RUNNING", "566366000000000")
    assert found["ended"] == ("TERMINATED", "566366000000000")
    assert found["stopped"] == ("CANCELLED", "766366000000000")
    assert found["busy"] == ("RUNNING", "968969000000000")
    assert found["wrong"] == ("FAILED", "333333000000000")
    assert found["code"][1] is None


@pytest.mark.parametrize(("rule", "instance", "statement"), FLOW_DAMAGE)
def test_damage_of_a_flow_is_found_and_named(store: Path, rule: Rule, instance: str, statement: str) -> None:
    (number,) = sql(store, "SELECT number FROM instances WHERE id = ?", instance)[0]
    sql(store, statement, *([number] if "?1" in statement else []))
    problems = audit(store)
    assert (instance, rule) in {(problem.instance, problem.rule) for problem in problems}, problems


@played
async def test_K4_a_fan_out_whose_next_item_could_not_begin_is_sound() -> None:
    """All that began has completed, and the node failed."""
    text = """
activities:
  start: {trigger: true}
  one: {run: echo, each: "[1, 0, 2]", limit: 1, input: ["6 / item"], after: start}
  two: {run: echo, each: "[1, 2, 0, 4]", limit: 2, input: ["6 / item"], after: start}
  caught: {run: echo, input: ["1"], after: {two: {catch: ExpressionError}}}
"""
    async with staged(text) as stage:  # which checks the store in the end
        await stage.failure()
        assert stage.key() == "6767"  # caught one start two


@played
async def test_C1_a_child_whose_refusal_came_too_late_is_sound() -> None:
    """The flow ended before it could read that the id was taken."""
    text = """
activities:
  start: {trigger: true}
  kid: {flow: f, id: flow.id, after: start}
  stop: {interrupt: self, after: start}
"""
    async with staged(text) as stage:
        with pytest.raises(hf.WorkflowCancelled):
            await stage.run()
        assert stage.key() == "766"  # kid start stop


SKIPPED_TARGET = """
activities:
  start: {trigger: true}
  gate: {run: step, input: ["'gate'"], after: start, when: "false"}
  target: {run: step, input: ["'target'"], after: gate}
  other: {run: step, input: ["'other'"], after: start}
  again: {cycle: target, after: [target, other], join: any, when: "target.output == null"}
"""
"""Its key: again, gate, other, start, target."""


@played
async def test_K8_a_cycle_to_what_was_skipped_before_is_sound() -> None:
    async with staged(SKIPPED_TARGET) as stage:
        await stage.run()
        assert stage.key() == "33666"
        assert stage.troupe.count("target") == 1


@pytest.mark.parametrize("digit", ["3", "9"])
def test_K8_what_a_cycle_ran_again_cannot_be_as_if_it_had_not(tmp_path: Path, digit: str) -> None:
    path = tmp_path / "store.db"

    @played
    async def run() -> None:
        async with staged(SKIPPED_TARGET, store=path) as stage:
            await stage.run()

    run()
    lie(path, "it", "target", digit, 4)
    said = [problem.text for problem in audit(path) if problem.rule is Rule.KEY_AGREES]
    assert any("'target'" in text and "a cycle ran it again" in text for text in said), said


def lie(store: Path, instance: str, node: str, digit: str, position: int) -> None:
    """Let the last progress and the key of an instance say something else of one node."""
    number, key = sql(store, "SELECT number, collation_key FROM instances WHERE id = ?", instance)[0]
    rows = sql(store, "SELECT turn, events FROM history WHERE number = ? ORDER BY turn DESC", number)
    for turn, data in rows:
        events = json.loads(data)
        told = [event for event in events if event["event"] == "flow_advanced"]
        if told:
            told[-1]["digits"][node] = digit
            encoded = json.dumps(events).encode()
            sql(store, "UPDATE history SET events = ? WHERE number = ? AND turn = ?", encoded, number, turn)
            break
    changed = padded(f"{key[:position]}{digit}{key[position + 1 :]}")
    sql(store, "UPDATE instances SET collation_key = ? WHERE number = ?", changed, number)


CANNOT_BE_TOLD = {("round", "again", "3", "8"), ("stopped", "jumped", "3", "7")}
"""Conditions are not asked again: a cycle may wait until what it runs again is at rest; what was about to begin when
the flow was cancelled has left no trace.
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "instance",
    ["awake", "caught", "bad", "cut", "hungry", "ended", "stopped", "busy", "round", "all", "held", "listening"],
)
def test_K2_no_digit_says_what_its_node_did_not_do(sound: Path, tmp_path: Path, instance: str) -> None:
    (workflow, key), *_ = sql(sound, "SELECT workflow, collation_key FROM instances WHERE id = ?", instance)
    (stored,), *_ = sql(sound, "SELECT definition FROM flows WHERE name = ?", workflow)
    believed: set[tuple[str, str, str, str]] = set()
    for position, node in enumerate(decode_definition(bytes(stored)).nodes):
        for status in sorted(STATUS):
            if str(status) != key[position]:
                copy = tmp_path / "copy.db"
                shutil.copy(sound, copy)
                lie(copy, instance, node.id, str(status), position)
                rules = {problem.rule for problem in audit(copy) if problem.instance == instance}
                if not rules & {Rule.KEY_AGREES, Rule.KEY_COMPLETE}:
                    believed.add((instance, node.id, key[position], str(status)))
    assert believed <= CANNOT_BE_TOLD
