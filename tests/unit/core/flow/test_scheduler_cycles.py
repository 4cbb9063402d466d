"""Cycles of a flow, rule by rule (K8)."""

import pytest
from tests.unit.core.flow.flow_states import (
    OOPS,
    Asking,
    FlowState,
    begin,
    finish,
    flow_outcome,
    graph_of,
    never,
    restart_cycle,
)

from holdfast.core.flow.scheduler import Completed, FlowOutcome, FlowScheduler
from holdfast.errors import IllegalMove

LOOP = graph_of("t->check", "check->again", "check->done", "t->side")


def one_round(state: FlowState) -> FlowState:
    """`check` completes, `again` is the cycle and is chosen; `done` is not."""
    settled = finish(LOOP, state, "check", Completed(), condition=lambda edge: edge.target != "done")
    assert settled.started == ("again",)
    return finish(LOOP, settled.state, "again", Completed()).state


def test_K8_a_cycle_runs_its_target_and_what_follows_five_times() -> None:
    state = finish(LOOP, begin(LOOP).state, "side", Completed()).state
    for _ in range(5):
        state = one_round(state)
        settled = restart_cycle(LOOP, state, "check")
        assert settled.started == ("check",)
        assert settled.state.key.unpadded == "98966"  # again, check, done, side, t
        state = settled.state
    settled = finish(LOOP, state, "check", Completed(), condition=lambda edge: edge.target != "again")
    assert (settled.started, settled.skipped) == (("done",), ("again",))
    assert flow_outcome(finish(LOOP, settled.state, "done", Completed()).state) is FlowOutcome.COMPLETED


def test_K8_a_cycle_waits_until_nothing_it_repeats_is_active() -> None:
    state = finish(LOOP, begin(LOOP).state, "side", Completed()).state
    settled = finish(LOOP, state, "check", Completed())  # `done` has started, too
    state = finish(LOOP, settled.state, "again", Completed()).state
    with pytest.raises(IllegalMove, match="'done' is started"):
        restart_cycle(LOOP, state, "check")


def test_K8_a_failure_caught_in_one_round_does_not_excuse_one_in_the_next() -> None:
    graph = graph_of("t->a", "a-!>again")
    state = finish(graph, begin(graph).state, "a", OOPS).state
    state = finish(graph, state, "again", Completed()).state
    assert state.caught == {"a"}
    assert restart_cycle(graph, state, "a").state.caught == set()


def test_K8_an_any_join_waits_for_the_new_round_although_an_outside_edge_once_enabled_it() -> None:
    graph = graph_of("t->a", "t->out", "a->meet", "out->meet", any_joins=["meet"])
    state = finish(graph, begin(graph).state, "out", Completed()).state
    state = finish(graph, state, "a", Completed()).state
    state = finish(graph, state, "meet", Completed()).state
    settled = restart_cycle(graph, state, "a")
    assert settled.started == ("a",)
    assert finish(graph, settled.state, "a", Completed()).started == ("meet",)


def test_K8_an_outside_edge_that_is_still_undecided_may_enable_an_any_join_after_the_cycle() -> None:
    graph = graph_of("t->a", "t->out", "a->meet", "out->meet", any_joins=["meet"])
    state = finish(graph, begin(graph).state, "a", Completed()).state
    state = finish(graph, state, "meet", Completed()).state
    state = restart_cycle(graph, state, "a").state
    settled = finish(graph, state, "a", Completed(), condition=never)
    assert (settled.started, settled.skipped) == ((), ()), "`out` still runs and may enable it"
    assert finish(graph, settled.state, "out", Completed()).started == ("meet",)


def test_K8_only_what_has_run_can_be_run_again() -> None:
    with pytest.raises(IllegalMove, match="'check' has not run yet"):
        restart_cycle(LOOP, FlowState.new(LOOP), "check")
    with pytest.raises(IllegalMove, match="'t' has not run yet"):
        restart_cycle(LOOP, begin(LOOP).state, "t")


def test_K8_what_an_outside_failure_bars_is_skipped_again_at_once() -> None:
    graph = graph_of("t->a", "t->out", "a->meet", "out->meet")
    state = finish(graph, begin(graph).state, "out", OOPS).state
    state = finish(graph, state, "a", Completed()).state
    settled = restart_cycle(graph, state, "a")
    assert (settled.started, settled.skipped) == (("a",), ("meet",))


def test_K8_the_condition_of_a_node_says_nothing_about_later_rounds() -> None:
    """An outside edge that enabled it still does, although it was turned away in the round before."""
    graph = graph_of("t->a", "t->out", "a->meet", "out->meet", guarded=["meet"])
    progress = FlowScheduler(graph)
    progress.trigger()
    progress.finish("out", Completed())
    assert progress.finish("a", Completed(), conditions=Asking(admits=never)).skipped == ["meet"]
    progress.restart("a")
    assert progress.finish("a", Completed(), conditions=Asking(never)).started == ["meet"]


def test_K8_a_failure_from_before_a_cycle_is_caught_once_and_for_all() -> None:
    graph = graph_of("t->a", "t->out", "a->meet", "out-!>meet", guarded=["meet"])
    progress = FlowScheduler(graph)
    progress.trigger()
    progress.finish("out", OOPS)
    progress.finish("a", Completed())
    progress.finish("meet", Completed())
    progress.restart("a")
    assert progress.finish("a", Completed(), conditions=Asking(admits=never)).skipped == ["meet"]
    assert progress.outcome is FlowOutcome.COMPLETED
