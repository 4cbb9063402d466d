"""Edges, joins, failures and cycles of a flow, rule by rule (K3, K4, K5, K7, K8)."""

import pytest
from tests.unit.core.flow.flow_states import (
    OOPS,
    Asking,
    FlowState,
    always,
    begin,
    changes_of,
    finish,
    flow_outcome,
    graph_of,
    never,
    trigger,
)

from holdfast.core.collation import Digit
from holdfast.core.flow.definition import FailurePolicy
from holdfast.core.flow.graph import Graph, GraphEdge, Join
from holdfast.core.flow.scheduler import (
    Completed,
    EdgeState,
    Errored,
    FlowOutcome,
    FlowScheduler,
    JoinVerdict,
    Released,
    Settlement,
    TimedOut,
    join_verdict,
    undecided_edge,
)
from holdfast.errors import IllegalMove, MalformedGraph, UnknownActivity, UnknownWord

FOX = graph_of("quick->brown", "brown->fox", "fox->jumped", "fox->slept", "slept->ate")


@pytest.mark.parametrize("energetic", [True, False])
def test_K7_the_fox_flow_reaches_the_documented_keys(energetic: bool) -> None:
    def condition(edge: GraphEdge) -> bool:
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


def test_K3_K4_edges_are_decided_by_the_outcome_of_their_source() -> None:
    normal, error = GraphEdge("a", "b"), GraphEdge("a", "b", ("TooTired",))
    assert undecided_edge(normal, Completed()) is T
    assert undecided_edge(normal, Released()) is T
    assert undecided_edge(normal, OOPS) is F
    assert undecided_edge(error, Completed()) is D
    assert undecided_edge(error, OOPS) is T
    assert undecided_edge(error, Errored(("KeyError", "Exception"))) is D
    assert undecided_edge(GraphEdge("a", "b", ("TimeoutError",)), TimedOut()) is T
    assert undecided_edge(GraphEdge("a", "b", ("Exception",)), TimedOut()) is T


def test_K3_a_condition_is_asked_only_where_it_matters() -> None:
    graph = graph_of("t->a", "a->b", GraphEdge("a", "c", ("KeyError",), has_condition=True), "a-!>d")
    asked: list[str] = []

    def condition(edge: GraphEdge) -> bool:
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
    edges = [GraphEdge("t", "a", has_condition=True), GraphEdge("t", "b", has_condition=True), GraphEdge("t", "plain")]
    graph = graph_of(GraphEdge("t", "rest", otherwise=True), *edges)
    assert begin(graph, lambda edge: edge.target == "b").started == ("b", "plain")
    assert begin(graph, never).started == ("rest", "plain")
    failing = graph_of("t->a", GraphEdge("a", "b", has_condition=True), GraphEdge("a", "rest", otherwise=True))
    assert finish(failing, begin(failing).state, "a", OOPS).skipped == ("b", "rest")


def test_K3_the_condition_of_a_node_is_asked_when_its_join_is_satisfied() -> None:
    for any_joins, at_first, at_last in [((), [], ["join"]), (("join",), ["join"], ["join", "join"])]:
        graph = graph_of("t->a", "t->b", "a->join", "b->join", "join->end", any_joins=any_joins, guarded=["join"])
        progress = FlowScheduler(graph)
        asked: list[str] = []

        def admits(activity: str, asked: list[str] = asked) -> bool:
            asked.append(activity)
            return activity != "join"

        progress.trigger(Asking(admits=admits))
        asked.clear()
        first = progress.finish("a", Completed(), conditions=Asking(admits=admits))
        assert (asked, first.skipped) == (at_first, [])
        assert progress.finish("b", Completed(), conditions=Asking(admits=admits)).skipped == ["join", "end"]
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
    graph = graph_of("t->work", GraphEdge("work", "cleanup", ("KeyError",)))
    settled = finish(graph, begin(graph).state, "work", OOPS)
    assert settled.skipped == ("cleanup",)
    assert flow_outcome(settled.state) is FlowOutcome.ERROR


def test_K4_drain_lets_the_rest_run_on_and_fail_fast_cancels_it() -> None:
    graph = graph_of("t->a", "t->b", "t->wait", "b->c")
    state = begin(graph).state
    state = state.paused("wait")
    drained = finish(graph, state, "a", OOPS, policy=FailurePolicy.DRAIN)
    assert flow_outcome(drained.state) is FlowOutcome.ACTIVE
    assert finish(graph, drained.state, "b", Completed()).started == ("c",)
    fast = finish(graph, state, "a", OOPS, policy=FailurePolicy.FAIL_FAST)
    assert fast.cancelled == ("b", "c", "wait")
    assert fast.state.key.unpadded == "77367"  # a, b, c, t, wait
    assert flow_outcome(fast.state) is FlowOutcome.ERROR


def test_K4_a_wait_that_timed_out_is_caught_like_any_failure_and_fails_fast_if_not() -> None:
    for edges, policy, started, cancelled in [
        (["t->w", "w-!>mend", "t->b"], FailurePolicy.FAIL_FAST, ("mend",), ()),
        (["t->w", "w->next", "t->b"], FailurePolicy.FAIL_FAST, (), ("b", "next")),
    ]:
        graph = graph_of(*edges)
        state = begin(graph).state
        paused = state.paused("w")
        settled = finish(graph, paused, "w", TimedOut(), policy=policy)
        assert (settled.started, settled.cancelled) == (started, cancelled)
        assert settled.state.caught == ({"w"} if started else set())


def test_K4_words_from_outside_are_understood_and_unknown_ones_refused() -> None:
    graph = Graph.of("t", {"t": "all", "a": "any"}, [GraphEdge("t", "a")])
    state = trigger(graph, FlowState.new(graph)).state
    assert finish(graph, state, "a", OOPS, policy="fail_fast").state.key.unpadded == "76"
    with pytest.raises(UnknownWord, match="'later' is not a valid policy of a flow; use one of drain, fail_fast"):
        finish(graph, state, "a", OOPS, policy="later")
    with pytest.raises(UnknownWord, match="'some' is not a valid join"):
        Graph.of("t", {"t": "some"}, [])


def test_K4_after_a_cancellation_no_edge_is_undecided() -> None:
    graph = graph_of("t->a", "t->b", "b->c")
    fast = finish(graph, begin(graph).state, "a", OOPS, policy=FailurePolicy.FAIL_FAST)
    assert U not in fast.state.edges.values()


def test_K5_exactly_one_decision_completes_the_flow() -> None:
    settled = [begin(DIAMOND)]
    for activity in ("a", "b", "join"):
        settled.append(finish(DIAMOND, settled[-1].state, activity, Completed()))
    assert [each.completed_now for each in settled] == [False, False, False, True]


def test_K4_fail_fast_spares_the_rest_when_the_failure_is_caught() -> None:
    graph = graph_of("t->a", "t->b", "a-!>mend")
    settled = finish(graph, begin(graph).state, "a", OOPS, policy=FailurePolicy.FAIL_FAST)
    assert (settled.started, settled.cancelled) == (("mend",), ())


def test_K4_a_failure_is_uncaught_if_its_handler_does_not_run() -> None:
    """By its own condition, or because another parent failed, whichever comes first."""
    graph = graph_of("t->a", "a-!>mend", guarded=["mend"])
    progress = FlowScheduler(graph)
    progress.trigger()
    assert progress.finish("a", OOPS, conditions=Asking(admits=never)).skipped == ["mend"]
    assert (progress.failures.caught, progress.outcome) == (set(), FlowOutcome.ERROR)
    graph = graph_of("t->a", "t->b", "b-!>other", "a-!>mend", "b->mend")
    for order in (["a", "b"], ["b", "a"]):
        state = begin(graph).state
        for activity in order:
            state = finish(graph, state, activity, OOPS).state
        assert (state.caught, state.offered) == ({"b"}, set()), order


def test_K4_a_node_that_runs_does_not_catch_a_failure_whose_error_edge_to_it_is_dead() -> None:
    """The condition of the error edge to `other` is false, and `mend` is skipped by its own condition."""
    graph = graph_of("t->a", "t->b", "a-!>mend", "b->other", "b->mend", "a-!>other", guarded=["mend"])
    progress = FlowScheduler(graph)
    progress.trigger()
    conditions = Asking(lambda edge: edge != GraphEdge("a", "other", ("Exception",), has_condition=True), never)
    progress.finish("a", OOPS, conditions=conditions)
    settled = progress.finish("b", Completed(), conditions=conditions)
    assert (settled.started, settled.skipped) == (["other"], ["mend"])
    progress.finish("other", Completed())
    assert (progress.failures.caught, progress.outcome) == (set(), FlowOutcome.ERROR)


def test_K8_a_handler_that_was_skipped_can_catch_a_failure_from_outside_of_the_cycle_in_the_next_round() -> None:
    graph = graph_of("t->a", "t->b", "b->c", "a-!>mend", "c->mend")
    progress = FlowScheduler(graph)
    progress.trigger()
    progress.finish("a", OOPS)
    progress.finish("b", Completed())
    assert progress.finish("c", OOPS).skipped == ["mend"]
    assert (progress.failures.caught, progress.failures.offered) == (set(), set())
    progress.restart("b")
    assert progress.failures.offered == {"a"}
    progress.finish("b", Completed())
    assert progress.finish("c", Completed()).started == ["mend"]
    assert progress.failures.caught == {"a"}


def test_K4_a_failure_stays_caught_while_another_handler_of_it_runs_or_may() -> None:
    graph = graph_of("t->a", "t->b", "a-!>mend", "a-!>other", "b->other")
    state = finish(graph, begin(graph).state, "a", OOPS).state
    assert finish(graph, state, "b", OOPS).state.caught == {"a"}
    graph = graph_of("t->a", "t->b", "t->c", "a-!>mend", "c->mend", "a-!>other", "b->other")
    state = finish(graph, begin(graph).state, "a", OOPS).state
    read = FlowScheduler(graph)
    read.restore(changes_of(state))  # also when it was read from its history meanwhile
    for progress in (state.copy(), read):
        assert progress.failures.offered == {"a"}
        assert progress.finish("b", OOPS).skipped == ["other"]
        assert progress.failures.offered == {"a"}
        assert progress.finish("c", Completed()).started == ["mend"]
        assert (progress.failures.caught, progress.failures.offered) == ({"a"}, set())


def test_K4_an_any_handler_that_turns_a_failure_away_has_not_caught_it_although_it_runs_later() -> None:
    graph = graph_of("t->a", "t->b", "a-!>mend", "b->mend", any_joins=["mend"], guarded=["mend"])
    progress = FlowScheduler(graph)
    progress.trigger()
    assert progress.finish("a", OOPS, conditions=Asking(admits=never)) == Settlement([], [], ())
    assert progress.finish("b", Completed()).started == ["mend"]
    progress.finish("mend", Completed())
    assert progress.outcome is FlowOutcome.ERROR


def test_K4_fail_fast_cancels_the_rest_when_a_failure_escapes_its_handler() -> None:
    graph = graph_of("t->a", "t->b", "t->c", "c->d", "a-!>mend", "b->mend", "b->next", guarded=["mend"])
    progress = FlowScheduler(graph)
    progress.trigger()
    assert progress.finish("a", OOPS, policy=FailurePolicy.FAIL_FAST).cancelled == ()
    settled = progress.finish("b", Completed(), conditions=Asking(admits=never), policy=FailurePolicy.FAIL_FAST)
    assert settled.cancelled == ["c", "d", "next"]
    assert progress.key.rstrip("0") == "7673336", "a, b, c, d, mend, next, t: what did nothing yet is skipped"


def test_K4_fail_fast_cancels_what_started_and_did_nothing_yet_as_if_it_had_not() -> None:
    graph = graph_of("t->a", "t->b", "t->c")
    progress = FlowScheduler(graph)
    progress.trigger()
    assert progress.finish("a", OOPS, policy=FailurePolicy.FAIL_FAST, waiting=["c"]).cancelled == ["b", "c"]
    assert progress.key.rstrip("0") == "7736"  # a, b, c, t


@pytest.mark.parametrize(
    ("edges", "error", "reason"),
    [
        (["t->a", "a->t"], MalformedGraph, "the trigger 't' cannot come after"),
        (["t->a", "a->b", "b->a"], MalformedGraph, "form a cycle: a, b"),
        (["t->a", "b->a"], MalformedGraph, "unreachable: b"),
        (["t->a", "t->a"], MalformedGraph, "t -> a occurs twice"),
        (["t->a", "a->a"], MalformedGraph, "form a cycle: a"),
    ],
)
def test_edges_that_make_no_flow_are_refused(edges: list[str], error: type[Exception], reason: str) -> None:
    with pytest.raises(error, match=reason):
        graph_of(*edges)


def test_names_that_are_not_there_are_refused() -> None:
    with pytest.raises(UnknownActivity, match="'x'"):
        Graph.of("t", {"t": Join.ALL}, [GraphEdge("t", "x")])
    with pytest.raises(UnknownActivity, match="trigger 'u'"):
        Graph.of("u", {"t": Join.ALL}, [])
    with pytest.raises(UnknownActivity, match="'x'"):
        DIAMOND.reachable("x")


def streaming(*more: GraphEdge) -> Graph:
    """A source whose responses two nodes take, one of them together with the output of another node."""
    joins: dict[str, Join] = dict.fromkeys(("start", "source", "taker", "both", "other", "last"), Join.ALL)
    edges = (
        GraphEdge("start", "source"),
        GraphEdge("start", "other"),
        GraphEdge("source", "taker", carries_responses=True),
        GraphEdge("source", "both", carries_responses=True),
        GraphEdge("other", "both"),
        GraphEdge("taker", "last"),
        *more,
    )
    return Graph.of("start", joins, edges)


def test_K10_the_first_response_starts_the_nodes_that_take_it() -> None:
    scheduler = FlowScheduler(streaming())
    with pytest.raises(IllegalMove, match="cannot send a response"):
        scheduler.respond("source")
    scheduler.trigger()
    assert scheduler.respond("source").started == ["taker"]
    assert scheduler.respond("source").started == []
    assert scheduler.key.rstrip("0") == "998868"  # both last other source start taker
    assert scheduler.finish("other", Completed()).started == ["both"]
    assert scheduler.finish("source", Completed()).started == []
    assert scheduler.finish("taker", Completed()).started == ["last"]


def test_K10_a_source_that_completes_without_a_response_starts_them_too() -> None:
    scheduler = FlowScheduler(streaming())
    scheduler.trigger()
    assert scheduler.finish("source", Completed()).started == ["taker"]


def test_K10_a_source_that_fails_skips_nodes_that_have_not_begun_and_leaves_the_others() -> None:
    scheduler = FlowScheduler(streaming())
    scheduler.trigger()
    scheduler.respond("source")
    assert scheduler.finish("source", OOPS).skipped == ["both"]
    assert scheduler.digit("taker") is Digit.STARTED
    taken = scheduler.graph.outgoing["source"][0]
    assert scheduler.edge(taken) is EdgeState.TAKEN
    assert scheduler.finish("taker", OOPS).skipped == ["last"]
    fresh = FlowScheduler(streaming())
    fresh.trigger()
    assert fresh.finish("source", OOPS).skipped == ["taker", "both", "last"]


def test_K10_the_edges_of_responses_are_read_from_a_history() -> None:
    scheduler = FlowScheduler(streaming())
    scheduler.trigger()
    scheduler.respond("source")
    changes = scheduler.take_changes()
    assert changes is not None
    read = FlowScheduler(streaming())
    read.restore(changes)
    assert read.key == scheduler.key
    assert read.finish("other", Completed()).started == ["both"]
