"""Random flows survive being stored and being written as YAML."""

from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

import holdfast as hf
from holdfast.core.flow.definition import (
    FlowDefinition,
    decode_definition,
    definition_hash,
    encode_definition,
    graph_of,
)
from holdfast.flows.builder import EdgeArguments, FlowBuilder, NodeRef

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
LENGTHS = st.integers(1, 10**9).map(lambda ms: ms / 1000)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**12), 10**12) | st.floats(-1e9, 1e9) | TEXTS.map(hf.Flow.text),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=6,
)
MAYBE = st.none()


@st.composite
def flows(draw: st.DrawFn) -> hf.Flow:
    """A flow of all kinds, each activity after some of those before it."""
    flow = hf.Flow(draw(st.sampled_from(["f", "order-2", "a b"])), draw(st.sampled_from(["", "1", "3.10", "yes"])))
    steps = [flow.trigger("start", input=draw(MAYBE | st.just({"a": "string", "b c": "any"})))]
    for number in range(draw(st.integers(0, 6))):
        steps.append(_add(draw, flow, f"n{number}", steps))
    if draw(st.booleans()):
        flow.policy("fail_fast")
    if draw(st.booleans()):
        flow.event_policy("drop_unsubscribed")
    flow.output(draw(JSON))
    return flow


def _add(draw: st.DrawFn, flow: FlowBuilder, name: str, steps: list[NodeRef]) -> NodeRef:
    sources = draw(st.lists(st.sampled_from(steps), min_size=1, max_size=3, unique_by=lambda step: step.id))
    how = st.sampled_from(["plain", "failed", "when"])
    after: EdgeArguments = [_edge(source, draw(how)) for source in sources]
    when: Any = draw(MAYBE | st.just("start.output == null"))
    hold: Any = draw(st.booleans() | st.fixed_dictionaries({"timeout": LENGTHS | st.just("start.input.a")}))
    kind = draw(st.sampled_from(["run", "child", "wait", "timer", "cycle", "raise", "interrupt"]))
    if kind == "child":
        return flow.child(name, "w", after=after, input=draw(JSON), detached=draw(st.booleans()), when=when, hold=hold)
    if kind == "wait":
        return flow.wait(name, event="e", timeout=draw(MAYBE | LENGTHS), after=after, when=when, hold=hold)
    if kind == "timer":
        return flow.wait(name, timer=draw(LENGTHS | st.just("start.input.a")), after=after, when=when, hold=hold)
    if kind == "cycle" and sources[0] is not steps[0]:
        return flow.cycle(name, sources[0], after=after, when=when, delay=draw(MAYBE | LENGTHS))
    if kind == "raise":
        return flow.raise_event(name, "e", to="start.input.a", value=draw(JSON), after=after, when=when, hold=hold)
    if kind == "interrupt":
        return flow.interrupt(name, after=after, reason=draw(MAYBE | st.just("no: use")), when=when, hold=hold)
    retry: Any = {"attempts": draw(st.integers(1, 9)), "initial": draw(LENGTHS.filter(lambda length: length < 10**6))}
    return flow.run(
        name, "a.b", after=after, input=draw(JSON), retry=draw(MAYBE | st.just(retry)), when=when, hold=hold
    )


def _edge(source: NodeRef, how: str) -> Any:
    return {"plain": source, "failed": source.failed("E", "F.G"), "when": source.when("start.input.a == 'x'")}[how]


def _without_lines(definition: FlowDefinition) -> FlowDefinition:
    nodes = tuple(msgspec.structs.replace(node, line=0) for node in definition.nodes)
    return msgspec.structs.replace(definition, nodes=nodes)


@given(flows())
def test_a_flow_survives_being_stored(flow: hf.Flow) -> None:
    stored = decode_definition(encode_definition(flow.definition))
    assert stored == flow.definition
    assert definition_hash(stored) == flow.hash
    graph_of(stored)


@given(flows())
def test_a_flow_survives_being_written_as_yaml(flow: hf.Flow) -> None:
    read = hf.Flow.parse(flow.to_yaml())
    assert _without_lines(read.definition) == flow.definition, flow.to_yaml()
    assert read.hash == flow.hash
    assert read.to_yaml() == hf.Flow.parse(read.to_yaml()).to_yaml()
