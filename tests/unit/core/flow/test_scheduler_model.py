"""Random flows against an oracle that knows the rules only, not the algorithm.

The oracle looks at the final digits and edges and asks of every activity by itself: given its parents, may it be
what it is? It also checks that each node moved once, that order did not matter, and that duplicates changed nothing.
"""

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.core.flow.flow_states import Asking, FlowState, finish, flow_outcome, trigger

from holdfast.core.collation import Digit
from holdfast.core.flow.graph import Graph, GraphEdge, Join
from holdfast.core.flow.scheduler import Completed, Errored, FlowOutcome, FlowScheduler
from holdfast.errors import IllegalMove

ERROR = Errored(("Oops", "Exception"))


class Plan:
    """A random graph, and what each activity and condition will say when asked."""

    def __init__(self, graph: Graph, fails: Mapping[str, bool], holds: Mapping[GraphEdge, bool]) -> None:
        self.graph, self.fails, self.holds = graph, fails, holds


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    names = [f"n{number:02}" for number in range(draw(st.integers(2, 12)))]
    edges: list[GraphEdge] = []
    for at, target in enumerate(names[1:], start=1):
        for source in draw(st.sets(st.sampled_from(names[:at]), min_size=1, max_size=3)):
            catches = draw(st.sampled_from([None, None, ("Oops",), ("Other",)]))
            edges.append(GraphEdge(source, target, catches, has_condition=True))
    joins = {name: draw(st.sampled_from(Join)) for name in names}
    fails = {name: draw(st.booleans()) for name in names}
    return Plan(Graph.of(names[0], joins, edges), fails, {edge: draw(st.booleans()) for edge in edges})


def run(plan: Plan, order: st.DataObject | None) -> tuple[FlowState, list[str]]:
    """Run to the end, finishing started activities in any order; every finish is delivered twice."""
    settled = trigger(plan.graph, FlowState.new(plan.graph), plan.holds.__getitem__)
    moved = [*settled.started, *settled.skipped]
    active = list(settled.started)
    state = settled.state
    while active:
        at = order.draw(st.integers(0, len(active) - 1)) if order else 0
        activity = active.pop(at)
        outcome = ERROR if plan.fails[activity] else Completed()
        settled = finish(plan.graph, state, activity, outcome, condition=plan.holds.__getitem__)
        with pytest.raises(IllegalMove):
            finish(plan.graph, settled.state, activity, outcome, condition=plan.holds.__getitem__)
        state = settled.state
        moved += [*settled.started, *settled.skipped]
        active += settled.started
    return state, moved


def is_taken(plan: Plan, digits: Mapping[str, Digit], edge: GraphEdge) -> bool:
    parent = digits[edge.source]
    if parent is Digit.COMPLETED:
        return edge.catches is None and plan.holds[edge]
    return parent is Digit.ERRORED and edge.catches == ("Oops",) and plan.holds[edge]


def is_failed(digits: Mapping[str, Digit], edge: GraphEdge) -> bool:
    return digits[edge.source] is Digit.ERRORED and edge.catches is None


@given(plans(), st.data())
def test_K3_K4_K5_random_flows_end_as_the_rules_say_in_whatever_order(plan: Plan, data: st.DataObject) -> None:
    state, moved = run(plan, data)
    digits = state.key.digits
    assert sorted(moved) == sorted(set(digits) - {plan.graph.trigger}), "each node moves exactly once"
    for activity, digit in digits.items():
        incoming = [plan.graph.edges[at] for at in plan.graph.incoming[activity]]
        if not incoming:
            continue
        taken = any(is_taken(plan, digits, edge) for edge in incoming)
        failed = any(is_failed(digits, edge) for edge in incoming)
        runs = taken if plan.graph.joins[activity] is Join.ANY else taken and not failed
        expected = (Digit.ERRORED if plan.fails[activity] else Digit.COMPLETED) if runs else Digit.SKIPPED
        assert digit is expected, activity
    assert state.key.is_complete
    uncaught = [
        activity
        for activity, digit in digits.items()
        if digit is Digit.ERRORED
        and not any(
            edge.catches == ("Oops",) and plan.holds[edge] and digits[edge.target] is not Digit.SKIPPED
            for edge in (plan.graph.edges[at] for at in plan.graph.outgoing[activity])
        )
    ]
    assert flow_outcome(state) is (FlowOutcome.ERROR if uncaught else FlowOutcome.COMPLETED)
    other = run(plan, None)[0]
    assert (state.key, state.edges, state.caught) == (other.key, other.edges, other.caught), "order does not matter"


@given(plans(), st.data())
def test_K8_a_progress_is_read_from_its_changes_without_deciding_anything(plan: Plan, data: st.DataObject) -> None:
    """After every step a second progress, which only heard of the changes, goes on exactly as the first."""
    live, read = FlowScheduler(plan.graph), FlowScheduler(plan.graph)
    settled = live.trigger(Asking(plan.holds.__getitem__))
    active = list(settled.started)
    while True:
        if (changes := live.take_changes()) is not None:
            read.restore(changes)
        assert (read.key, read.outcome, read.failures.caught) == (live.key, live.outcome, live.failures.caught)
        assert read.failures.offered == live.failures.offered
        for at, edge in enumerate(plan.graph.edges):
            if live.digit(edge.target) is Digit.PENDING:
                assert read.edge(at) is live.edge(at), edge
        if not active:
            break
        activity = active.pop(data.draw(st.integers(0, len(active) - 1)))
        outcome = ERROR if plan.fails[activity] else Completed()
        active += live.finish(activity, outcome, conditions=Asking(plan.holds.__getitem__)).started
