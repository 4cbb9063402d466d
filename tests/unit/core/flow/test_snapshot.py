"""What is read off the history of a flow: its books, its key, and what its nodes did in which round."""

from holdfast.core import history as ev
from holdfast.core.flow.definition import (
    After,
    ChildAction,
    CycleAction,
    Each,
    FlowDefinition,
    Node,
    RunAction,
    TriggerAction,
    graph_of,
)
from holdfast.core.flow.snapshot import FlowSnapshot, in_order, version_of
from holdfast.core.flow.state import FlowState, NodePlace, replay_event
from holdfast.core.history import Payload

START = ev.Started(time_ms=1, workflow="f", version="", seed=1, input=Payload(), flow="abc")


def after(*sources: str) -> tuple[After, ...]:
    return tuple(After(source) for source in sources)


def test_a_flow_that_is_read_again_waits_for_no_child_that_was_asked_to_end() -> None:
    """As the flow that asked it: else the end of the child would be taken for that of a later round."""
    definition = FlowDefinition(
        "f", (Node("kids", ChildAction("k", each=Each("x")), after("t")), Node("t", TriggerAction()))
    )
    book = FlowState(graph_of(definition))
    replay_event(book, START)
    replay_event(book, ev.FanOutStarted(node="kids", count=2))
    for number in (0, 1):
        replay_event(book, ev.ChildScheduled(child=number, name="k", id=f"k{number}", node="kids", item=number))
    replay_event(book, ev.ChildCancelRequested(child=1))
    assert book.apply(ev.ChildStopped(time_ms=2, child=1, state="CANCELLED")) is None
    assert book.apply(ev.ChildCompleted(time_ms=2, child=0, result=Payload())) == NodePlace("kids", 0)


def test_K8_the_steps_of_nodes_know_their_round_and_the_count_of_a_fan_out_is_that_of_the_last() -> None:
    nodes = (
        Node("again", CycleAction("many"), after("many")),
        Node("many", RunAction("a", each=Each("x")), after("t")),
        Node("t", TriggerAction()),
    )
    reading = FlowSnapshot(
        FlowDefinition("f", nodes),
        [
            START,
            ev.FanOutStarted(node="many", count=1),
            ev.ActivityScheduled(activity=0, name="a", node="many", item=0),
            ev.FlowAdvanced(digits={"t": "6", "many": "8"}),
            ev.ActivityCompleted(time_ms=2, activity=0, attempt=1, result=Payload()),
            ev.NodeCompleted(node="many", output=Payload()),
            ev.FlowAdvanced(digits={"many": "6", "again": "6"}),
            ev.CycleRestarted(node="again", target="many", round=1),
            ev.FanOutStarted(node="many", count=2),
            ev.ActivityScheduled(activity=1, name="a", node="many", item=0),
            ev.ActivityScheduled(activity=2, name="a", node="many", item=1),
            ev.FlowAdvanced(digits={"many": "8"}),
        ],
    )
    many, again = reading.nodes["many"], reading.nodes["again"]
    assert reading.key == "986000000000000"
    assert [step.dimension for step in many.steps] == ["0/0:0/0", "0/1:0/0", "0/1:1/0"]
    assert [step.number for step in many.current] == [1, 2]
    assert (many.count, again.rounds) == (2, 1)
    assert [each.node.id for each in reading.in_order()] == ["t", "many", "again"]


def test_nodes_are_in_the_order_of_the_graph_and_as_they_were_written() -> None:
    nodes = (
        Node("a", RunAction("x"), after("t"), line=9),
        Node("b", RunAction("x"), after("c"), line=2),
        Node("c", RunAction("x"), after("t"), line=8),
        Node("t", TriggerAction(), line=1),
    )
    definition = FlowDefinition("f", nodes)
    assert in_order(graph_of(definition), definition) == ["t", "c", "b", "a"]


def test_code_and_what_has_not_begun_has_no_version() -> None:
    assert version_of([START]) == "abc"
    assert version_of([]) == ""
