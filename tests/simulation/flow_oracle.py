"""What must come of a random flow, worked out from the rules alone: K3, K4, K5 and K8 as they are written.

All activities are looked at in an order in which each comes after its parents, again and again while a cycle goes
round. Nothing here knows how the engine does it.
"""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from tests.simulation.flow_plans import BASES, Arrow, Plan, Step, fold

TAKEN, DEAD, FAILED = "taken", "dead", "failed"


@dataclass(slots=True)
class Foretold:
    """How a flow ends."""

    digits: dict[str, str] = field(default_factory=dict[str, str])
    outputs: dict[str, Any] = field(default_factory=dict[str, Any])
    errors: dict[str, str] = field(default_factory=dict[str, str])
    """By the step that failed: the type."""
    caught: set[str] = field(default_factory=set[str])
    edges: dict[tuple[str, str], str] = field(default_factory=dict[tuple[str, str], str])
    runs: Counter[str] = field(default_factory=Counter[str])
    """How often each step began."""

    @property
    def key(self) -> str:
        """Without its padding."""
        return "".join(self.digits[name] for name in sorted(self.digits))

    @property
    def uncaught(self) -> set[str]:
        return {name for name, digit in self.digits.items() if digit == "7"} - self.caught


def foretell(plan: Plan) -> Foretold:
    """Evaluate a plan."""
    told = Foretold()
    rounds: Counter[str] = Counter()
    _look_at(plan, plan.steps, told, rounds, forced="")
    while (cycle := next((step for step in plan.steps if told.digits[step.name] == "round"), None)) is not None:
        rounds[cycle.name] += 1
        reach = plan.reach(cycle.target)
        for step in plan.steps:
            for arrow in step.after if step.name in reach and step.is_any else ():
                if arrow.source not in reach and told.edges[arrow.source, step.name] == TAKEN:
                    told.edges[arrow.source, step.name] = DEAD  # it was spent by the run that it enabled
        told.caught -= reach
        _look_at(plan, [step for step in plan.steps if step.name in reach], told, rounds, forced=cycle.target)
    return told


def _look_at(plan: Plan, steps: list[Step], told: Foretold, rounds: Counter[str], forced: str) -> None:
    """Decide these, each after its parents. Those behind a cycle that goes round wait until it does not."""
    for step in steps:
        told.digits[step.name] = "9"
    for step in steps:
        if any(told.digits[arrow.source] in ("9", "round") for arrow in step.after):
            continue  # behind a cycle that goes round: decided when it is over
        if step.name == forced or step.kind == "trigger" or _runs(step, told):
            _begin(plan, step, told, rounds)
        else:
            told.digits[step.name] = "3"
        _decide_edges(plan, step, told)
    for step in plan.steps:  # K4: caught by a handler that runs
        for arrow in step.after if step in steps and told.digits[step.name] not in ("3", "9") else ():
            if arrow.catch and told.edges[arrow.source, step.name] == TAKEN:
                told.caught.add(arrow.source)


def _runs(step: Step, told: Foretold) -> bool:
    """K3."""
    states = [told.edges[arrow.source, step.name] for arrow in step.after]
    satisfied = TAKEN in states and (step.is_any or FAILED not in states)
    return satisfied and step.when is not False and _holds(step.when, None, told)


def _holds(when: bool | str | None, output: Any, told: Foretold) -> bool:
    """A condition that cannot be evaluated lets the node begin, and fail."""
    if isinstance(when, str) and when.startswith("below "):
        _, counter, limit = when.split()
        return bool(told.outputs.get(counter, 0) < int(limit))
    return when in (None, True, "bad") or (when == "even" and output % 2 == 0)


def _begin(plan: Plan, step: Step, told: Foretold, rounds: Counter[str]) -> None:
    bad = step.when == "bad" or any(
        arrow.when == "bad" and told.edges[arrow.source, step.name] == TAKEN for arrow in step.after
    )
    if bad and step.kind != "trigger":
        _fail(step, "ExpressionError", told)
        return
    told.runs[step.name] += 1
    if step.kind == "cycle":
        if rounds[step.name] < step.limit:
            told.digits[step.name] = "round"
        else:
            _fail(step, "CycleLimitExceeded", told)
        return
    error = _error(plan, step, told)
    if error:
        _fail(step, error, told)
        return
    told.digits[step.name] = "4" if step.kind in ("event", "timer") else "6"
    told.outputs[step.name] = _output(step, told)
    told.errors.pop(step.name, None)


def _fail(step: Step, error: str, told: Foretold) -> None:
    told.digits[step.name] = "7"
    told.errors[step.name] = error
    told.outputs.pop(step.name, None)


def _error(plan: Plan, step: Step, told: Foretold) -> str:
    if step.kind == "late":
        return "TimeoutError"
    if step.kind == "each":
        return step.fails if step.items > 1 else ""
    counter = plan.counter_of(step.name)
    if step.kind != "work" or (step.fails_in and counter and told.outputs.get(counter) != step.fails_in):
        return ""
    return step.fails


def _output(step: Step, told: Foretold) -> Any:
    match step.kind:
        case "work":
            return fold(step.own, [] if step.is_any else [_value(arrow, told) for arrow in step.after])
        case "count":
            return told.outputs.get(step.name, 0) + 1
        case "each":
            return [fold(item + step.own, []) for item in range(step.items)]
        case "child":
            return fold(step.own, [1])
        case "event":
            return step.own
        case _:
            return None


def _value(arrow: Arrow, told: Foretold) -> Any:
    """What a step reads of a parent: of the nearest round in which that ran (K8)."""
    return told.errors.get(arrow.source, "") if arrow.catch else told.outputs.get(arrow.source)


def _decide_edges(plan: Plan, step: Step, told: Foretold) -> None:
    """K3, K4: what leaves a step once it is decided."""
    digit = told.digits[step.name]
    if digit == "round":
        return
    chosen = False
    defaults: list[str] = []
    for target in plan.steps:
        for arrow in target.after:
            if arrow.source != step.name:
                continue
            state = _state_of(arrow, digit, told)
            if state == TAKEN and arrow.otherwise:
                defaults.append(target.name)
                continue
            chosen = chosen or (state == TAKEN and arrow.when is not None)
            told.edges[step.name, target.name] = state
    for name in defaults:
        told.edges[step.name, name] = DEAD if chosen else TAKEN


def _state_of(arrow: Arrow, digit: str, told: Foretold) -> str:
    if digit == "3":
        return DEAD
    if digit == "7":
        if not arrow.catch:
            return FAILED
        if arrow.catch not in BASES[told.errors[arrow.source]]:
            return DEAD
    elif arrow.catch:
        return DEAD
    return TAKEN if _holds(arrow.when, told.outputs.get(arrow.source), told) else DEAD
