"""Edges, joins, failures and cycles of a flow, rule by rule (K3, K4, K5, K7, K8)."""

from collections.abc import Iterable

import pytest
from tests.unit.core.flow_states import (
    Asking,
    Condition,
    FlowState,
    Settled,
    always,
    finish,
    flow_outcome,
    restart_cycle,
    trigger,
)

from holdfast.core.collation import Edge, Graph, Join
from holdfast.core.flow.outcomes import (
    Completed,
    EdgeState,
    Failed,
    FlowOutcome,
    JoinVerdict,
    Policy,
    Released,
    TimedOut,
    join_verdict,
    undecided_edge,
)
from holdfast.core.flow.progress import Progress
from holdfast.errors import CycleLimitExceeded, IllegalMove, MalformedGraph, UnknownActivity, UnknownWord

OOPS = Failed(("TooTired", "RuntimeError", "Exception"))


def graph_of(*edges: str | Edge, any_joins: Iterable[str] = (), guarded: Iterable[str] = ()) -> Graph:
    """Edges as `a->b`, or `a-!>b` for one that catches everything. The first source is the trigger."""
    parsed = [edge if isinstance(edge, Edge) else _parse(edge) for edge in edges]
    names = {end for edge in parsed for end in (edge.source, edge.target)}
    joins = {name: Join.ANY if name in any_joins else Join.ALL for name in names}
    return Graph.of(parsed[0].source, joins, parsed, guarded)


def _parse(edge: str) -> Edge:
    if "-!>" in edge:
        source, target = edge.split("-!>")
        return Edge(source, target, ("Exception",), has_condition=True)
    source, target = edge.split("->")
    return Edge(source, target, has_condition=True)


def begin(graph: Graph, condition: Condition = always) -> Settled:
    return trigger(graph, FlowState.new(graph), condition)


FOX = graph_of("quick->brown", "brown->fox", "fox->jumped", "fox->slept", "slept->ate")


@pytest.mark.parametrize("energetic", [True, False])
def test_K7_the_fox_flow_reaches_the_documented_keys(energetic: bool) -> None:
    def condition(edge: Edge) -> bool:
        return edge.target not in ("jumped", "slept") or (edge.target == "jumped") == energetic

    state = begin(FOX).state
    assert str(state.key) == "989969000000000"  # the trigger's commit starts `brown` with it
    state = finish(FOX, state, "brown", Completed(), condition=condition).state
    assert str(state.key) == "968969000000000"
    settled = finish(FOX, state, "fox", Completed(), condition=condition)
    if energetic:
        assert (settled.started, settled.skipped) == (("jumped",), ("slept", "ate"))
        assert str(settled.state.key) == "366863000000000"
        state = finish(FOX, settled.state, "jumped", Completed()).state
        assert str(state.key) == "366663000000000"
    else:
        assert (settled.started, settled.skipped) == (("slept",), ("jumped",))
        state = finish(FOX, settled.state, "slept", Completed()).state
        paused = state.paused("ate")
        assert str(paused.key) == "566366000000000"
        failed = finish(FOX, state, "ate", OOPS).state
        assert str(failed.key) == "766366000000000"
        assert flow_outcome(failed) is FlowOutcome.ERROR
        timed_out = finish(FOX, paused, "ate", TimedOut()).state
        assert str(timed_out.key) == "766366000000000"
        assert flow_outcome(paused) is FlowOutcome.ACTIVE
        state = finish(FOX, paused, "ate", Released()).state
        assert str(state.key) == "466366000000000"
    assert flow_outcome(state) is FlowOutcome.COMPLETED


T, D, F, U = EdgeState.TAKEN, EdgeState.DEAD, EdgeState.FAILED, EdgeState.UNDECIDED


@pytest.mark.parametrize(
    ("states", "for_all", "for_any"),
    [
        ([U], "wait", "wait"),
        ([T], "run", "run"),
        ([D], "skip", "skip"),
        ([F], "skip", "skip"),
        ([T, U], "wait", "run"),
        ([D, U], "wait", "wait"),
        ([F, U], "skip", "wait"),
        ([T, T], "run", "run"),
        ([T, D], "run", "run"),
        ([T, F], "skip", "run"),
        ([D, D], "skip", "skip"),
        ([D, F], "skip", "skip"),
        ([F, F], "skip", "skip"),
    ],
)
def test_K3_joins_run_wait_or_skip(states: list[EdgeState], for_all: str, for_any: str) -> None:
    counts = {"undecided": states.count(U), "taken": states.count(T), "failed": states.count(F)}
    assert join_verdict(Join.ALL, **counts) is JoinVerdict(for_all)
    assert join_verdict(Join.ANY, **counts) is JoinVerdict(for_any)


def never(edge: Edge) -> bool:
    del edge
    return False


def test_K3_K4_edges_are_decided_by_the_outcome_of_their_source() -> None:
    normal, error = Edge("a", "b"), Edge("a", "b", ("TooTired",))
    assert undecided_edge(normal, Completed()) is T
    assert undecided_edge(normal, Released()) is T
    assert undecided_edge(normal, OOPS) is F
    assert undecided_edge(error, Completed()) is D
    assert undecided_edge(error, OOPS) is T
    assert undecided_edge(error, Failed(("KeyError", "Exception"))) is D
    assert undecided_edge(Edge("a", "b", ("TimeoutError",)), TimedOut()) is T
    assert undecided_edge(Edge("a", "b", ("Exception",)), TimedOut()) is T


def test_K3_a_condition_is_asked_only_where_it_matters() -> None:
    graph = graph_of("t->a", "a->b", Edge("a", "c", ("KeyError",), has_condition=True), "a-!>d")
    asked: list[str] = []

    def condition(edge: Edge) -> bool:
        asked.append(edge.target)
        return False

    state = begin(graph, always).state
    assert finish(graph, state, "a", Completed(), condition=condition).skipped == ("b", "c", "d")
    assert asked == ["b"]
    asked.clear()
    failed = finish(graph, state, "a", OOPS, condition=condition)
    assert asked == ["d"], "it matches the error; the edge to b is failed, and c catches another"
    assert failed.state.caught == set()


def test_K3_the_default_branch_is_taken_if_no_condition_held() -> None:
    edges = [Edge("t", "a", has_condition=True), Edge("t", "b", has_condition=True), Edge("t", "plain")]
    graph = graph_of(Edge("t", "rest", otherwise=True), *edges)
    assert begin(graph, lambda edge: edge.target == "b").started == ("b", "plain")
    assert begin(graph, never).started == ("rest", "plain")
    failing = graph_of("t->a", Edge("a", "b", has_condition=True), Edge("a", "rest", otherwise=True))
    assert finish(failing, begin(failing).state, "a", OOPS).skipped == ("b", "rest")


def test_K3_the_condition_of_a_node_is_asked_when_its_join_is_satisfied() -> None:
    for any_joins, at_first, at_last in [((), [], ["join"]), (("join",), ["join"], ["join", "join"])]:
        graph = graph_of("t->a", "t->b", "a->join", "b->join", "join->end", any_joins=any_joins, guarded=["join"])
        progress = Progress(graph)
        asked: list[str] = []

        def admits(activity: str, asked: list[str] = asked) -> bool:
            asked.append(activity)
            return activity != "join"

        progress.trigger(Asking(admits=admits))
        asked.clear()
        first = progress.finish("a", Completed(), judge=Asking(admits=admits))
        assert (asked, first.skipped) == (at_first, [])
        assert progress.finish("b", Completed(), judge=Asking(admits=admits)).skipped == ["join", "end"]
        assert asked == at_last
        assert progress.outcome is FlowOutcome.COMPLETED


DIAMOND = graph_of("t->a", "t->b", "a->join", "b->join")


def test_K3_the_join_of_a_diamond_runs_once_when_the_last_parent_is_decided() -> None:
    state = begin(DIAMOND).state
    first = finish(DIAMOND, state, "a", Completed())
    assert first.started == ()
    second = finish(DIAMOND, first.state, "b", Completed())
    assert second.started == ("join",)


def test_K3_a_join_runs_when_one_parent_was_skipped() -> None:
    settled = begin(DIAMOND, lambda edge: edge.target != "b")
    assert (settled.started, settled.skipped) == (("a",), ("b",))
    assert finish(DIAMOND, settled.state, "a", Completed()).started == ("join",)


def test_K3_a_skip_spreads_through_a_diamond_once() -> None:
    graph = graph_of("t->top", "top->a", "top->b", "a->join", "b->join", "join->end")
    settled = begin(graph, lambda edge: edge.target != "top")
    assert sorted(settled.skipped) == ["a", "b", "end", "join", "top"]
    assert flow_outcome(settled.state) is FlowOutcome.COMPLETED


def test_K3_an_any_join_starts_at_the_first_taken_edge_and_ignores_the_rest() -> None:
    graph = graph_of("t->a", "t->b", "a->first", "b->first", any_joins=["first"])
    state = begin(graph).state
    settled = finish(graph, state, "a", Completed())
    assert settled.started == ("first",)
    later = finish(graph, settled.state, "b", OOPS)
    assert (later.started, later.skipped) == ((), ())
    assert flow_outcome(later.state) is FlowOutcome.ACTIVE


def test_K3_an_all_join_is_skipped_as_soon_as_a_parent_failed() -> None:
    settled = finish(DIAMOND, begin(DIAMOND).state, "a", OOPS)
    assert settled.skipped == ("join",)
    after = finish(DIAMOND, settled.state, "b", Completed())
    assert (after.started, after.skipped) == ((), ())
    assert flow_outcome(after.state) is FlowOutcome.ERROR


def test_K4_a_caught_failure_is_no_error_of_the_flow() -> None:
    graph = graph_of("t->work", "work->next", "work-!>cleanup")
    settled = finish(graph, begin(graph).state, "work", OOPS)
    assert (settled.started, settled.skipped) == (("cleanup",), ("next",))
    end = finish(graph, settled.state, "cleanup", Completed()).state
    assert end.key.is_error
    assert flow_outcome(end) is FlowOutcome.COMPLETED


def test_K4_an_error_edge_that_does_not_match_catches_nothing() -> None:
    graph = graph_of("t->work", Edge("work", "cleanup", ("KeyError",)))
    settled = finish(graph, begin(graph).state, "work", OOPS)
    assert settled.skipped == ("cleanup",)
    assert flow_outcome(settled.state) is FlowOutcome.ERROR


def test_K4_drain_lets_the_rest_run_on_and_fail_fast_cancels_it() -> None:
    graph = graph_of("t->a", "t->b", "t->wait", "b->c")
    state = begin(graph).state
    state = state.paused("wait")
    drained = finish(graph, state, "a", OOPS, policy=Policy.DRAIN)
    assert flow_outcome(drained.state) is FlowOutcome.ACTIVE
    assert finish(graph, drained.state, "b", Completed()).started == ("c",)
    fast = finish(graph, state, "a", OOPS, policy=Policy.FAIL_FAST)
    assert fast.cancelled == ("b", "c", "wait")
    assert fast.state.key.unpadded == "77367"  # a, b, c, t, wait
    assert flow_outcome(fast.state) is FlowOutcome.ERROR


def test_K4_a_wait_that_timed_out_is_caught_like_any_failure_and_fails_fast_if_not() -> None:
    for edges, policy, started, cancelled in [
        (["t->w", "w-!>mend", "t->b"], Policy.FAIL_FAST, ("mend",), ()),
        (["t->w", "w->next", "t->b"], Policy.FAIL_FAST, (), ("b", "next")),
    ]:
        graph = graph_of(*edges)
        state = begin(graph).state
        paused = state.paused("w")
        settled = finish(graph, paused, "w", TimedOut(), policy=policy)
        assert (settled.started, settled.cancelled) == (started, cancelled)
        assert settled.state.caught == ({"w"} if started else set())


def test_K4_words_from_outside_are_understood_and_unknown_ones_refused() -> None:
    graph = Graph.of("t", {"t": "all", "a": "any"}, [Edge("t", "a")])
    state = trigger(graph, FlowState.new(graph)).state
    assert finish(graph, state, "a", OOPS, policy="fail_fast").state.key.unpadded == "76"
    with pytest.raises(UnknownWord, match="'later' is no policy of a flow; there are drain, fail_fast"):
        finish(graph, state, "a", OOPS, policy="later")
    with pytest.raises(UnknownWord, match="'some' is no join"):
        Graph.of("t", {"t": "some"}, [])


def test_K4_after_a_cancellation_no_edge_is_undecided() -> None:
    graph = graph_of("t->a", "t->b", "b->c")
    fast = finish(graph, begin(graph).state, "a", OOPS, policy=Policy.FAIL_FAST)
    assert U not in fast.state.edges.values()


def test_K5_exactly_one_decision_completes_the_flow() -> None:
    settled = [begin(DIAMOND)]
    for activity in ("a", "b", "join"):
        settled.append(finish(DIAMOND, settled[-1].state, activity, Completed()))
    assert [each.completed_now for each in settled] == [False, False, False, True]


def test_K4_fail_fast_spares_the_rest_when_the_failure_is_caught() -> None:
    graph = graph_of("t->a", "t->b", "a-!>mend")
    settled = finish(graph, begin(graph).state, "a", OOPS, policy=Policy.FAIL_FAST)
    assert (settled.started, settled.cancelled) == (("mend",), ())


LOOP = graph_of("t->check", "check->again", "check->done", "t->side")


def one_round(state: FlowState) -> FlowState:
    """`check` completes, `again` is the cycle and is chosen; `done` is not."""
    settled = finish(LOOP, state, "check", Completed(), condition=lambda edge: edge.target != "done")
    assert settled.started == ("again",)
    return finish(LOOP, settled.state, "again", Completed()).state


def test_K8_a_cycle_runs_its_target_and_what_follows_five_times() -> None:
    state = finish(LOOP, begin(LOOP).state, "side", Completed()).state
    for rounds in range(5):
        state = one_round(state)
        settled = restart_cycle(LOOP, state, "check", rounds=rounds)
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
        restart_cycle(LOOP, state, "check", rounds=0)


def test_K8_the_limit_ends_a_runaway_cycle() -> None:
    state = one_round(finish(LOOP, begin(LOOP).state, "side", Completed()).state)
    assert restart_cycle(LOOP, state, "check", rounds=999).started == ("check",)
    with pytest.raises(CycleLimitExceeded, match="went round 1000 times"):
        restart_cycle(LOOP, state, "check", rounds=1_000)


def test_K8_a_failure_caught_in_one_round_does_not_excuse_one_in_the_next() -> None:
    graph = graph_of("t->a", "a-!>again")
    state = finish(graph, begin(graph).state, "a", OOPS).state
    state = finish(graph, state, "again", Completed()).state
    assert state.caught == {"a"}
    assert restart_cycle(graph, state, "a", rounds=0).state.caught == set()


def test_K8_an_any_join_waits_for_the_new_round_although_an_outside_edge_once_enabled_it() -> None:
    graph = graph_of("t->a", "t->out", "a->meet", "out->meet", any_joins=["meet"])
    state = finish(graph, begin(graph).state, "out", Completed()).state
    state = finish(graph, state, "a", Completed()).state
    state = finish(graph, state, "meet", Completed()).state
    settled = restart_cycle(graph, state, "a", rounds=0)
    assert settled.started == ("a",)
    assert finish(graph, settled.state, "a", Completed()).started == ("meet",)


def test_K8_an_outside_edge_that_is_still_undecided_may_enable_an_any_join_after_the_cycle() -> None:
    graph = graph_of("t->a", "t->out", "a->meet", "out->meet", any_joins=["meet"])
    state = finish(graph, begin(graph).state, "a", Completed()).state
    state = finish(graph, state, "meet", Completed()).state
    state = restart_cycle(graph, state, "a", rounds=0).state
    settled = finish(graph, state, "a", Completed(), condition=never)
    assert (settled.started, settled.skipped) == ((), ()), "`out` still runs and may enable it"
    assert finish(graph, settled.state, "out", Completed()).started == ("meet",)


def test_K8_only_what_has_run_can_be_run_again() -> None:
    with pytest.raises(IllegalMove, match="'check' has not run yet"):
        restart_cycle(LOOP, FlowState.new(LOOP), "check", rounds=0)
    with pytest.raises(IllegalMove, match="'t' has not run yet"):
        restart_cycle(LOOP, begin(LOOP).state, "t", rounds=0)


def test_K8_what_an_outside_failure_bars_is_skipped_again_at_once() -> None:
    graph = graph_of("t->a", "t->out", "a->meet", "out->meet")
    state = finish(graph, begin(graph).state, "out", OOPS).state
    state = finish(graph, state, "a", Completed()).state
    settled = restart_cycle(graph, state, "a", rounds=0)
    assert (settled.started, settled.skipped) == (("a",), ("meet",))


@pytest.mark.parametrize(
    ("edges", "error", "reason"),
    [
        (["t->a", "a->t"], MalformedGraph, "the trigger 't' cannot come after"),
        (["t->a", "a->b", "b->a"], MalformedGraph, "in a circle: a, b"),
        (["t->a", "b->a"], MalformedGraph, "nothing leads to b"),
        (["t->a", "t->a"], MalformedGraph, "t -> a is there twice"),
        (["t->a", "a->a"], MalformedGraph, "in a circle: a"),
    ],
)
def test_edges_that_make_no_flow_are_refused(edges: list[str], error: type[Exception], reason: str) -> None:
    with pytest.raises(error, match=reason):
        graph_of(*edges)


def test_names_that_are_not_there_are_refused() -> None:
    with pytest.raises(UnknownActivity, match="'x'"):
        Graph.of("t", {"t": Join.ALL}, [Edge("t", "x")])
    with pytest.raises(UnknownActivity, match="trigger 'u'"):
        Graph.of("u", {"t": Join.ALL}, [])
    with pytest.raises(UnknownActivity, match="'x'"):
        DIAMOND.reachable("x")
