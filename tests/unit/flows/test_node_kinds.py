"""A kind of node is known wherever kinds matter. A new kind fails here until each place has decided about it."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest
from tests.tidy.test_type_tables import matches

import holdfast as hf
from holdfast.core.flow.definition import Action, AnyAction
from holdfast.flows import compiled_flow
from holdfast.flows.builder import FlowBuilder
from holdfast.flows.compiled_flow import CompiledFlow
from holdfast.flows.expressions.expression import Expression, compile_expression
from holdfast.flows.expressions.templates import CompiledTemplate, compile_template
from holdfast.flows.labels import kind_of
from holdfast.flows.language.expression_checker import expressions_of
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
  child: {flow: w, after: run, each: start.input.children, id: start.input.child, detached: true, input: {x: index}}
  waits: {wait: {event: e, timeout: start.input.timeout}, after: {child: {when: start.input.waits}}}
  again: {cycle: run, after: waits, delay: start.input.delay, limit: 3}
  tells: {raise: {event: e, to: start.input.receiver, value: {y: run.output}}, after: [waits, run], when: start.error}
  stops: {interrupt: start.input.stopped, after: waits, descendants: true, reason: enough}
  holds: {run: b, after: start, hold: {timeout: start.input.held}}
  takes: {run: c, after: holds_not, each: holds_not.responses, limit: 2, hold: true}
  holds_not: {run: stream, after: start}
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


@pytest.mark.parametrize(
    "function", ["_action", "_in_action", "detail_of", "start_node", "_template_of", "_span", "_target"]
)
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


def test_every_expression_of_every_kind_is_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: set[str] = set()

    def expression(text: str) -> Expression:
        compiled.add(text)
        return compile_expression(text)

    def template(value: Any, *, is_output: bool = False) -> CompiledTemplate:
        compiled.update(strings_in(value))
        return compile_template(value, is_output=is_output)

    monkeypatch.setattr(compiled_flow, "compile_expression", expression)
    monkeypatch.setattr(compiled_flow, "compile_template", template)
    definition = hf.Flow.parse(EVERY_KIND).definition
    CompiledFlow(definition, "digest", lambda name: hf.activity(name=name)(strings_in))
    expected = {(node.id, found.where): found.text for node in definition.nodes for found in expressions_of(node)}
    assert {place: text for place, text in expected.items() if text not in compiled} == {}
    assert len({*expected.values()}) == len(expected), "each expression occurs once, so that each must be compiled"


def strings_in(template: Any) -> Iterator[str]:
    """The expressions of a template."""
    if isinstance(template, str):
        yield template
        return
    parts: Any = template.values() if hasattr(template, "values") else template
    for part in parts if isinstance(template, list | dict) else ():
        yield from strings_in(part)


@pytest.mark.parametrize("kind", KINDS)
def test_the_guide_has_every_kind(kind: str) -> None:
    assert f"{kind}:" in GUIDE.read_text("utf-8")
