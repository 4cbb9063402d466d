"""Random flows end as the oracle says: digits, results, and how often each activity ran; calm and with crashes."""

import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.scenarios.support import check_tables, history_of, rows
from tests.simulation.flow_oracle import Foretold, foretell
from tests.simulation.flow_plans import ACTIVITIES, CHILD, Plan, plans, text_of
from tests.support.examples import examples

import holdfast as hf
from holdfast.core.history import ActivityScheduled, ChildScheduled, CycleRestarted, FlowAdvanced, HistoryEvent
from holdfast.testing.simulation.simulation import Job, RaiseEvent, Simulation

MORE_THAN_ENOUGH = 25
"""How often a wait may begin in a wild flow."""


class AnyEnd:
    """What a flow may give of which nobody knows how it ends."""

    def __ne__(self, other: object) -> bool:
        return False

    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = None  # type: ignore[assignment]


class AnEnd:
    """What a flow may give: its result, or one of the failures that nobody caught."""

    def __init__(self, plan: Plan, told: Foretold) -> None:
        self._plan, self._told = plan, told
        self._result = {step.name: told.outputs.get(step.name) for step in plan.steps[1:]} | {"n00": 0}

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __eq__(self, other: object) -> bool:
        if not self._told.uncaught:
            return other == self._result
        if not isinstance(other, str) or not other.startswith("failed: "):
            return False
        return any(self._mark(name) in other for name in self._told.uncaught)

    def _mark(self, name: str) -> str:
        step = self._plan.by_name[name]
        match self._told.errors[name]:
            case "ExpressionError":
                return f"node '{name}'"
            case "CycleLimitExceeded":
                return f"cycle '{name}'"
            case "TimeoutError":
                return "'never' did not come"
            case _:
                return f"broken {step.own + (step.kind == 'each')}"

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"failed: one of {self._told.uncaught}" if self._told.uncaught else repr(self._result)


def job_of(plan: Plan, told: Foretold | None) -> Job:
    """With an event for each time that one is waited for; for more than enough, if nobody knows how often it is."""
    events = [
        RaiseEvent(step.name, step.own)
        for step in plan.steps
        if step.kind == "event"
        for _ in range(MORE_THAN_ENOUGH if told is None else told.runs[step.name])
    ]
    expected = AnyEnd() if told is None else AnEnd(plan, told)
    return Job("it", hf.Flow.parse(text_of(plan)), ({},), expected, actions=tuple(events))


def check_history(plan: Plan, events: list[HistoryEvent]) -> dict[str, str]:
    """The order in which things happened: nobody begins before its parents are decided, but for the target of a cycle,
    which runs whatever they did, also if it was skipped before (K8). The digits in the end.
    """
    digits = {step.name: "9" for step in plan.steps}
    steps, targets = plan.by_name, set[str]()
    for event in events:
        if isinstance(event, CycleRestarted):
            targets.add(event.target)
            for name in plan.reach(event.target):
                assert digits[name] not in "85", f"{name} is active, and yet the cycle went round"
                digits[name] = "9"
        elif isinstance(event, FlowAdvanced):
            digits |= event.digits
            for name in set(event.digits) - targets:
                stream = steps[name].stream  # a response enters before its source is decided (K10)
                parents = [
                    "6" if arrow.source == stream and digits[stream] == "8" else digits[arrow.source]
                    for arrow in steps[name].after
                ]
                if digits[name] in "8546" and parents:
                    decided = [digit in "3467" for digit in parents]
                    assert any(decided) if steps[name].is_any else all(decided), f"{name} began too early"
                    assert any(digit in "467" for digit in parents)
            targets -= {name for name in event.digits if digits[name] in "3467"}
    return digits


def check_end(plan: Plan, told: Foretold | None, store: Path) -> None:
    ((number, key),) = rows(store, "SELECT number, collation_key FROM instances WHERE id = 'it'")
    events = history_of(store, number)
    digits = check_history(plan, events)
    assert "".join(digits[name] for name in sorted(digits)) == key.rstrip("0")
    if told is None:
        assert not set(key) & set("985")
    elif plan.policy == "drain" or not told.uncaught:
        assert key.rstrip("0") == told.key
        begun = Counter(event.node for event in events if isinstance(event, ActivityScheduled | ChildScheduled))
        expected = Counter({step.name: told.runs[step.name] * _calls(step.kind, step.items) for step in plan.steps})
        failing = {step.name for step in plan.steps if step.kind == "each" and step.fails and step.limit}
        assert {name: count for name, count in (+begun).items() if name not in failing} == {
            name: count for name, count in (+expected).items() if name not in failing
        }
    else:
        assert not set(key) & set("985")
        assert "7" in key
    check_tables(store)


def _calls(kind: str, items: int) -> int:
    return items if kind == "each" else int(kind in ("work", "count", "child"))


EXAMPLES = examples(dev=10, ci=40, nightly=1_000)
"""Each is two simulated runs: few in `make check`, more in `make test`, many in `make nightly`."""


@settings(max_examples=EXAMPLES)
@given(plans(), st.integers(0, 2**16), st.sampled_from([0, 1, 1_000]))
def test_K3_K4_K5_K8_random_flows_end_as_the_oracle_says_calm_and_with_crashes(
    plan: Plan, seed: int, cache_size: int
) -> None:
    simulate(plan, foretell(plan), seed, cache_size)


@settings(max_examples=EXAMPLES)
@given(plans(wild=True), st.integers(0, 2**16), st.sampled_from([0, 1, 1_000]))
def test_K5_K8_wild_flows_end_calm_and_with_crashes(plan: Plan, seed: int, cache_size: int) -> None:
    simulate(plan, None, seed, cache_size)


def simulate(plan: Plan, told: Foretold | None, seed: int, cache_size: int) -> None:
    jobs = [job_of(plan, told), Job("child", CHILD, ({"own": 1},), 2)]
    options: list[dict[str, Any]] = [{"crash_rate": 0.0, "max_crashes": 0}, {"crash_rate": 0.15, "max_crashes": 4}]
    for option in options:
        with tempfile.TemporaryDirectory(prefix="holdfast-flows-") as folder:
            report = Simulation(seed, jobs, ACTIVITIES, cache_size=cache_size, **option).run(Path(folder))
            assert report.violations == []
            check_end(plan, told, report.store)
