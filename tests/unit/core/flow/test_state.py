"""The books of a flow: those that are read from the history are those of the flow that wrote it, after every event.

Random flows are run without a store: commands are answered in a random order, and after each answer a second run, which
only read the history, must have the same books and go on in the same way.
"""

from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.simulation.flow_oracle import foretell
from tests.simulation.flow_plans import ACTIVITIES, ERRORS, Plan, Step, fold, plans, text_of
from tests.support.examples import examples

import holdfast as hf
from holdfast.core import history as ev
from holdfast.core.collation import Digit
from holdfast.core.flow.scheduler import EdgeState, FlowScheduler
from holdfast.core.flow.state import FlowState, ResponseStream, replay_event
from holdfast.core.history import Payload
from holdfast.core.run import ExecutionId
from holdfast.core.updates import RELEASE_UPDATE
from holdfast.flows.compiled_flow import CompiledFlow
from holdfast.flows.run import FlowRun, failure_payload
from holdfast.payloads.failures import resolve_builtin

MOST_STEPS = 400
EXAMPLES = examples(dev=50, ci=120, nightly=2_000)
"""Each is a whole run, read again after every event."""
SLOTS = [name for name in FlowState.__slots__ if name not in ("scheduler", "closed_stream")]
BY_NAME = {activity.name: activity for activity in ACTIVITIES}


def payload(value: Any) -> Payload:
    return Payload(msgspec.Raw(msgspec.json.encode(value)))


class Play:
    """One run of a flow, and what it waits for."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        flow = hf.Flow.parse(text_of(plan))
        self._compiled = CompiledFlow(flow.definition, flow.hash, BY_NAME.__getitem__)
        self.run = self._fresh()
        self.history: list[ev.HistoryEvent] = []
        self.time_ms = 1
        self._inputs: dict[int, dict[str, Any]] = {}
        self._children: dict[int, dict[str, Any]] = {}
        self._started: set[int] = set()

    def _fresh(self) -> FlowRun:
        return FlowRun(self._compiled, ExecutionId("it", "random", 1), resolve_builtin, {})

    def apply(self, event: ev.Input) -> None:
        if isinstance(event, ev.ChildStarted | ev.ChildRefused):
            self._started.add(event.child)
        if isinstance(event, ev.UpdateAccepted):
            assert self.run.accepts_update(event)
        self.run.apply(event)
        output = self.run.take_output()
        self.history += output.events
        for call in output.scheduled:
            self._inputs[call.activity] = msgspec.json.decode(call.input)
        for child in () if output.effects is None else output.effects.children:
            self._children[child.child] = msgspec.json.decode(child.input)

    def replayed(self) -> FlowRun:
        """A run that read the history; it takes the place of the one that wrote it half of the time."""
        fresh = self._fresh()
        fresh.replay(self.history)
        return fresh

    def answers(self) -> list[ev.Input]:
        """What could happen next."""
        book = self.run.state
        found: list[ev.Input] = [self._activity(number) for number in book.activities if number not in book.streams]
        found += [answer for number, stream in book.streams.items() for answer in self._stream(number, stream)]
        found += [self._release(node) for node in book.held if self.run.scheduler.digit(node) is Digit.PAUSED]
        found += [
            ev.ChildCompleted(
                time_ms=self.time_ms, child=number, result=payload(fold(self._children[number]["own"], [1]))
            )
            for number, child in book.children.items()
            if not child.detached
        ]
        for number, child in book.children.items():
            if child.named and number not in self._started:
                found.append(ev.ChildStarted(time_ms=self.time_ms, child=number))
                found.append(ev.ChildRefused(time_ms=self.time_ms, child=number, reason="taken"))
        for timer, node in book.timers.items():
            if self._step(node).kind in ("late", "timer") or node in book.held:
                found.append(ev.TimerFired(time_ms=self.time_ms, timer=timer))
        for name in book.waits:
            if name != "never":
                found.append(ev.EventReceived(time_ms=self.time_ms, name=name, value=payload(self._step(name).own)))
        return found

    def _activity(self, number: int) -> ev.Input:
        given = self._inputs[number]
        if given["fails"]:
            error = ERRORS[given["fails"]](f"broken {given['own']}")
            return ev.ActivityFailed(time_ms=self.time_ms, activity=number, failure=failure_payload(error))
        result = payload(fold(given["own"], given["values"]))
        return ev.ActivityCompleted(time_ms=self.time_ms, activity=number, result=result)

    def _stream(self, number: int, stream: ResponseStream) -> list[ev.Input]:
        """The next value, the same of a second attempt, the end, or a failure."""
        given = self._inputs[number]
        found: list[ev.Input] = []
        for attempt in range(stream.attempt, 3):
            begins_again = attempt != stream.attempt and not stream.is_resumable
            next_value = 0 if begins_again else len(stream.values)
            if next_value < given["count"]:
                value = payload(next_value)
                found.append(
                    ev.ActivityYielded(
                        time_ms=self.time_ms, activity=number, number=stream.received, value=value, attempt=attempt
                    )
                )
            else:
                completed = ev.ActivityCompleted(
                    time_ms=self.time_ms, activity=number, result=Payload(), attempt=attempt
                )
                found.append(completed)
        if given["fails"]:
            failure = failure_payload(ValueError("broken stream"))
            found.append(ev.ActivityFailed(time_ms=self.time_ms, activity=number, failure=failure))
        return found

    def _release(self, node: str) -> ev.UpdateAccepted:
        given = payload([node, 5] if self.time_ms % 2 else [node])
        return ev.UpdateAccepted(time_ms=self.time_ms, id=f"{self.time_ms}", name=RELEASE_UPDATE, input=given)

    def _step(self, node: str) -> Step:
        return self.plan.by_name[node]


def books_of(run: FlowRun) -> dict[str, Any]:
    found: dict[str, Any] = {name: getattr(run.state, name) for name in SLOTS}
    found["fan_outs"] = {
        name: (each.count, each.begun, each.results, each.is_restarted) for name, each in run.state.fan_outs.items()
    }
    for name in ("streams", "responses"):
        found[name] = {
            key: (each.attempt, each.values, each.received, each.is_closed) for key, each in found[name].items()
        }
    return found


def edges_of(progress: FlowScheduler) -> dict[int, EdgeState]:
    """Of edges whose target waits, or may be made to wait again."""
    found: dict[int, EdgeState] = {}
    for at, edge in enumerate(progress.graph.edges):
        if progress.digit(edge.target) is Digit.PENDING or at in progress.lasting:
            found[at] = progress.edge(at)
    return found


def started() -> ev.Started:
    return ev.Started(time_ms=1, workflow="random", version="", seed=1, input=payload({}))


@settings(max_examples=EXAMPLES)
@given(plans(), st.data())
def test_K8_books_that_are_read_are_those_that_were_written_after_every_event(plan: Plan, data: st.DataObject) -> None:
    told = foretell(plan)
    play = play_to_the_end(plan, data)
    if plan.policy == "drain" or not told.uncaught:
        assert play.run.scheduler.key.rstrip("0") == told.key
    assert (play.run.scheduler.outcome.value == "error") == bool(told.uncaught)


@settings(max_examples=EXAMPLES)
@given(plans(wild=True), st.data())
def test_K5_K8_wild_flows_end_and_their_books_are_those_that_were_written(plan: Plan, data: st.DataObject) -> None:
    """Cycles that wait for each other, that others lead into while they go round, `any` joins of everything."""
    play = play_to_the_end(plan, data)
    progress = play.run.scheduler
    assert progress.is_complete
    uncaught = {step.name for step in plan.steps if progress.digit(step.name) is Digit.ERRORED}
    uncaught -= progress.failures.caught
    (end,) = (event for event in play.history if isinstance(event, ev.ExecutionCompleted | ev.ExecutionFailed))
    assert isinstance(end, ev.ExecutionFailed) == bool(uncaught)


def play_to_the_end(plan: Plan, data: st.DataObject) -> Play:
    """Answer in any order. After each answer a reader of the history has the same state, and may take over."""
    play = Play(plan)
    play.apply(started())
    while True:
        assert play.time_ms < MOST_STEPS
        other = play.replayed()
        assert books_of(other) == books_of(play.run)
        live, there = play.run.scheduler, other.scheduler
        assert (there.key, there.outcome, there.rounds) == (live.key, live.outcome, live.rounds)
        assert (there.failures.caught, there.failures.offered) == (live.failures.caught, live.failures.offered)
        assert edges_of(there) == edges_of(live)
        assert other.is_done == play.run.is_done
        if play.run.is_done:
            break
        if data.draw(st.booleans(), label="read again"):
            play.run = other
        answers = play.answers()
        assert answers, f"nothing can happen any more: {play.run.scheduler.key}"
        play.time_ms += 1
        play.apply(data.draw(st.sampled_from(answers), label="next"))
    return play


@settings(max_examples=EXAMPLES)
@given(plans(), st.data())
def test_K5_a_book_alone_is_enough_to_read_a_history(plan: Plan, data: st.DataObject) -> None:
    """Whoever looks at a flow from outside needs its graph and its history only."""
    play = Play(plan)
    play.apply(started())
    while not play.run.is_done:
        assert play.time_ms < MOST_STEPS
        play.time_ms += 1
        play.apply(data.draw(st.sampled_from(play.answers())))
    book = FlowState(play.run.flow.graph)
    for event in play.history:
        replay_event(book, event)
    assert book.scheduler.key == play.run.scheduler.key
    assert (book.outputs, book.errors) == (play.run.state.outputs, play.run.state.errors)
