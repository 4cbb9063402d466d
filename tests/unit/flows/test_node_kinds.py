"""A kind of node is known wherever kinds matter. A new kind fails here until each place has decided about it."""

from pathlib import Path
from typing import Any, get_args

import pytest
from tests.tidy.test_type_tables import matches

import holdfast as hf
from holdfast.core.flow.definition import Action, AnyAction
from holdfast.flows.builder import FlowBuilder
from holdfast.flows.labels import kind_of
from holdfast.flows.language.fields import Fields
from holdfast.flows.language.node_kinds import COMMON_KEYS, KINDS
from holdfast.flows.language.problems import Problems
from holdfast.flows.mermaid import SHAPES
from holdfast.flows.svg import BORDERS

ACTIONS: tuple[Any, ...] = get_args(AnyAction)
TAGS = {action.__struct_config__.tag for action in ACTIONS}
BUILDER_METHODS = {
    "trigger": "trigger", "run": "run", "flow": "child", "wait": "wait", "cycle": "cycle", "raise": "raise_event",
    "interrupt": "interrupt",
}  # fmt: skip
EVERY_KIND = """
flow: every-kind
activities:
  start: {trigger: true}
  run: {run: a, after: start, each: start.input.items, limit: 2, input: {x: item}}
  child: {flow: w, after: run, id: start.input.id, detached: true}
  waits: {wait: {event: e, timeout: start.input.seconds}, after: child}
  again: {cycle: run, after: waits, delay: start.input.seconds, limit: 3}
  tells: {raise: {event: e, to: start.input.id, value: {y: run.output}}, after: waits}
  stops: {interrupt: start.input.id, after: waits, descendants: true, reason: enough}
"""
"""A node of each kind, with all that is special to the kind."""
GUIDE = Path(__file__).parents[3] / "docs" / "guide" / "flows.md"


def test_the_union_of_actions_has_every_subclass() -> None:
    assert set(ACTIONS) == set(Action.__subclasses__())


@pytest.mark.parametrize(
    ("table", "kinds"),
    [
        ("read", set(KINDS)),
        ("built", set(BUILDER_METHODS)),
        ("Mermaid shape", set(SHAPES)),
        ("SVG border", set(BORDERS)),
    ],
)
def test_every_kind_is_in(table: str, kinds: set[str]) -> None:
    assert kinds == TAGS, table


@pytest.mark.parametrize("kind", KINDS)
def test_a_kind_is_read_as_the_action_of_its_name(kind: str) -> None:
    assert kind_of(KINDS[kind].read(Fields({kind: True}, "it", Problems()))) == kind
    assert not KINDS[kind].keys & COMMON_KEYS


@pytest.mark.parametrize("method", BUILDER_METHODS.values())
def test_the_builder_has_a_documented_method_for_every_kind(method: str) -> None:
    assert getattr(FlowBuilder, method).__doc__


@pytest.mark.parametrize("function", ["_action", "_in_action", "detail_of", "start_node"])
def test_a_match_on_actions_has_a_case_for_every_kind(function: str) -> None:
    names = {action.__name__ for action in ACTIONS}
    (cases,) = [cases for cases in matches(function) if len(cases & names) > 1]
    assert cases == names


def test_a_flow_with_every_kind_is_loaded_written_and_drawn() -> None:
    flow = hf.Flow.parse(EVERY_KIND)
    assert {kind_of(node.action) for node in flow.definition.nodes} == TAGS
    assert hf.Flow.parse(flow.to_yaml()).hash == flow.hash
    for node in flow.definition.nodes:
        assert node.id in flow.to_mermaid()
        assert node.id in flow.to_svg()


@pytest.mark.parametrize("kind", KINDS)
def test_the_guide_has_every_kind(kind: str) -> None:
    assert f"{kind}:" in GUIDE.read_text("utf-8")
