"""Random flows: what each activity and condition of one will say is decided beforehand, so that an oracle can know it.

Nothing that a plan leaves to chance may depend on time: a node with `join: any` reads nothing of its parents, and what
leads into the reach of a cycle from outside is decided before the cycle begins. Wild plans have no such bounds: nobody
knows how one ends, only that it does, and that whoever reads its history knows the same as whoever wrote it.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator
from dataclasses import MISSING, Field, dataclass, field, fields
from typing import Any, Final, cast

from hypothesis import strategies as st

import holdfast as hf

START: Final = "n00"
BASES: Final = {
    "KeyError": {"KeyError", "LookupError", "Exception"},
    "ValueError": {"ValueError", "Exception"},
    "TimeoutError": {"TimeoutError", "OSError", "Exception"},
    "ExpressionError": {"ExpressionError", "HoldfastError", "Exception"},
    "CycleLimitExceeded": {"CycleLimitExceeded", "HoldfastError", "Exception"},
}
"""By which names each error can be caught."""
ERRORS: Final[dict[str, type[Exception]]] = {"KeyError": KeyError, "ValueError": ValueError}
CHILD = hf.Flow.parse("""
flow: child
activities:
  start: {trigger: true}
  work:  {run: work, input: {own: "start.input.own", values: [1], fails: "''"}, after: start}
output: "work.output"
""")


def fold(own: int, values: list[Any]) -> int:
    """What a node makes of what its parents gave."""
    return (own + sum(at * _number(value) for at, value in enumerate(values, start=1))) % 97


def _number(value: Any) -> int:
    if isinstance(value, list):
        return sum(_number(each) for each in value)  # pyright: ignore[reportUnknownVariableType] - JSON
    return value if isinstance(value, int) else len(value or "")


@hf.activity(name="work", retry=hf.Retry(attempts=1), max_losses=1_000)
async def work(own: int, values: list[Any], fails: str) -> int:
    await asyncio.sleep(own % 5 * 0.01)
    if fails:
        raise ERRORS[fails](f"broken {own}")
    return fold(own, values)


@hf.activity(name="numbers", retry=hf.Retry(attempts=2, initial=0.01), max_losses=1_000)
async def numbers(count: int, fails: bool) -> AsyncIterator[int]:
    """Begins again after a loss. Fails at the end of its first attempt, if at all."""
    for number in range(count):
        await asyncio.sleep(0.01)
        yield number
    if fails and hf.activity_info().attempt == 1:
        raise ValueError("broken stream")


@hf.activity(name="resumed", resumable=True, retry=hf.Retry(attempts=2, initial=0.01), max_losses=1_000)
async def resumed(count: int, fails: bool) -> AsyncIterator[int]:
    """Continues after a loss. Fails at the end of its last attempt, if at all."""
    for number in range(hf.activity_info().delivered, count):
        await asyncio.sleep(0.01)
        yield number
    if fails:
        raise ValueError("broken stream")


ACTIVITIES: Final[list[hf.Activity[..., Any]]] = [work, numbers, resumed]


class Shown:
    """Shown with what it does not leave at its default: a failing plan must fit on a page."""

    __slots__ = ()

    def __repr__(self) -> str:
        said = [f"{each.name}={getattr(self, each.name)!r}" for each in fields(cast("Any", self)) if self._says(each)]
        return f"{type(self).__name__}({', '.join(said)})"

    def _says(self, one: Field[Any]) -> bool:
        empty: Any = [] if one.default is MISSING else one.default
        return bool(getattr(self, one.name) != empty)


@dataclass(slots=True, repr=False)
class Arrow(Shown):
    """An edge. `when` is True, False, "bad" (it cannot be evaluated), or "even" (of the number its source gave)."""

    source: str
    catch: str = ""
    when: bool | str | None = None
    otherwise: bool = False


@dataclass(slots=True, repr=False)
class Step(Shown):
    """One activity of a plan."""

    name: str
    kind: str
    own: int = 0
    after: list[Arrow] = field(default_factory=list[Arrow])
    is_any: bool = False
    when: bool | str | None = None
    """Of the node itself, if it has several parents."""
    fails: str = ""
    fails_in: int = 0
    """The round in which it fails, if not in all: by the number its cycle counts."""
    items: int = 0
    limit: int = 0
    target: str = ""
    until: int = 0
    """A cycle goes round while its target has counted less."""
    stream: str = ""
    """The parent whose responses are the items of this step."""
    holds: bool = False
    """It is held, and not released: it fails by its timeout. Only in wild plans."""


@dataclass(slots=True)
class Plan:
    """A whole flow, its steps in an order in which every one comes after its parents."""

    steps: list[Step]
    policy: str = "drain"

    @property
    def by_name(self) -> dict[str, Step]:
        return {step.name: step for step in self.steps}

    def reach(self, target: str) -> set[str]:
        """A step and everything behind it."""
        found = {target}
        for step in self.steps:
            if any(arrow.source in found for arrow in step.after):
                found.add(step.name)
        return found

    def certain(self, target: str) -> set[str]:
        """A step and those that never begin before it is decided: the way to them leads through no `any`."""
        found = {target}
        for step in self.steps:
            if not step.is_any and any(arrow.source in found for arrow in step.after):
                found.add(step.name)
        return found

    def counter_of(self, name: str) -> str:
        """The target of the cycle whose rounds a step can count."""
        targets = (step.target for step in self.steps if step.kind == "cycle")
        return next((target for target in targets if name in self.certain(target)), "")


# ---------------------------------------------------------------- as it is written


def text_of(plan: Plan, name: str = "random") -> str:
    """The plan as YAML."""
    lines = [f"flow: {name}", f"policy: {plan.policy}", "activities:"]
    lines += [f"  {step.name}: {{{', '.join(_parts(plan, step))}}}" for step in plan.steps]
    lines += ["output:", *(f'  {step.name}: "{step.name}.output"' for step in plan.steps[1:])]
    return "\n".join([*lines, "  n00: 0", ""])


def _parts(plan: Plan, step: Step) -> Iterator[str]:
    yield _action(plan, step)
    if step.after:
        arrows = (f"{arrow.source}: {{{', '.join(_of_arrow(arrow))}}}" for arrow in step.after)
        yield f"after: {{{', '.join(arrows)}}}"
    if step.is_any:
        yield "join: any"
    if step.when is not None:
        yield f'when: "{_condition(step.when, "")}"'
    if step.holds:
        yield "hold: {timeout: 25ms}"


ALWAYS_THE_SAME: Final = {
    "trigger": "trigger: true",
    "late": "wait: {event: never, timeout: 20ms}",
    "timer": "wait: {timer: 15ms}",
    "raise": 'raise: {event: told, to: "flow.id"}',
}


def _action(plan: Plan, step: Step) -> str:
    counter = plan.counter_of(step.name)
    failing = f"'{step.fails}'"
    if step.fails_in and counter:
        failing = f"{counter}.output == {step.fails_in} ? {failing} : ''"
    match step.kind:
        case "work":
            return f'run: work, input: {{own: {step.own}, values: [{_values(step)}], fails: "{failing}"}}'
        case "count":
            own = f"{step.name}.output == null ? 1 : {step.name}.output + 1"
            return f'run: work, input: {{own: "{own}", values: [], fails: "\'\'"}}'
        case "each":
            at_once = f", limit: {step.limit}" if step.limit else ""
            fails = f"item == 1 ? '{step.fails}' : ''"
            items = f"{step.stream}.responses" if step.stream else f"[{', '.join(map(str, range(step.items)))}]"
            given = f'own: "item + {step.own}", values: [], fails: "{fails}"'
            return f'each: "{items}", run: work, input: {{{given}}}{at_once}'
        case "numbers":
            name = "numbers" if step.own % 2 else "resumed"
            return f"run: {name}, input: {{count: {step.own % 5}, fails: {str(step.own > 30).lower()}}}"
        case "child":
            return f"flow: child, input: {{own: {step.own}}}"
        case "detached":
            chosen = f", id: \"'{step.name}'\"" if step.own % 2 else ""
            return f"flow: child, input: {{own: {step.own}}}, detached: true{chosen}"
        case "event":
            return f"wait: {{event: {step.name}, timeout: 12h}}"
        case "cycle":
            return f"cycle: {step.target}, limit: {step.limit}"
        case _:
            return ALWAYS_THE_SAME[step.kind]


def _values(step: Step) -> str:
    if step.is_any:
        return ""
    texts: list[str] = []
    for arrow in step.after:
        error = f"{arrow.source}.error == null ? '' : {arrow.source}.error.type"
        texts.append(f'"{error}"' if arrow.catch else f'"{arrow.source}.output"')
    return ", ".join(texts)


def _of_arrow(arrow: Arrow) -> Iterator[str]:
    if arrow.catch:
        yield f"catch: [{arrow.catch}]"
    if arrow.when is not None:
        yield f'when: "{_condition(arrow.when, arrow.source)}"'
    if arrow.otherwise:
        yield "otherwise: true"


def _condition(when: bool | str, source: str) -> str:
    if isinstance(when, str) and when.startswith("below "):
        _, counter, limit = when.split()
        return f"({counter}.output == null ? 0 : {counter}.output) < {limit}"
    return {"even": f"{source}.output % 2 == 0", "bad": "n00.input.nothing > 1"}.get(str(when), str(when).lower())


# ---------------------------------------------------------------- how plans are drawn

KINDS: Final = ("work", "work", "work", "work", "each", "child", "event", "late", "timer", "raise")
FAILURES: Final = ("", "", "", "KeyError", "ValueError")
WILD_KINDS: Final = (*KINDS, "detached", "detached", "each", "numbers", "numbers", "numbers")
CATCHES: Final = ("LookupError", "KeyError", "ValueError", "Exception", "TimeoutError", "ExpressionError")


@st.composite
def plans(draw: st.DrawFn, most: int = 10, wild: bool = False) -> Plan:
    """Random plans: conditions, failures, joins, default branches, error edges, waits, fan-outs, children, cycles."""
    steps = [Step(START, "trigger")]
    for number in range(1, draw(st.integers(2, most))):
        steps.append(draw(_steps(f"n{number:02}", steps, wild)))
    plan = Plan(steps)
    _draw_defaults(draw, plan)
    for _ in range(draw(st.integers(0, 3 if wild else 2))):
        _draw_cycle(draw, plan, wild)
    if wild or not any(step.kind == "cycle" for step in plan.steps):
        plan.policy = draw(st.sampled_from(["drain", "drain", "fail_fast"]))
    return plan


@st.composite
def _steps(draw: st.DrawFn, name: str, before: list[Step], wild: bool) -> Step:
    parents = draw(st.lists(st.sampled_from(before), min_size=1, max_size=3, unique_by=lambda step: step.name))
    kind = draw(st.sampled_from(WILD_KINDS if wild else KINDS))
    step = Step(name, kind, own=draw(st.integers(1, 40)))
    step.is_any = len(parents) > 1 and draw(st.booleans())
    for parent in parents:
        catch = draw(st.sampled_from(("", "", "", *CATCHES))) if parent.kind != "trigger" else ""
        whens: list[bool | str | None] = [None, None, True, False]
        if parent.kind in ("work", "child", "event") and not catch:
            whens += ["even", "even"]
        if wild or not step.is_any:
            whens += ["bad"]
        step.after.append(Arrow(parent.name, catch, draw(st.sampled_from(whens))))
    if len(parents) > 1 and draw(st.integers(0, 4)) == 0:
        conditions: list[bool | str] = [True, False, "bad"]
        step.when = draw(st.sampled_from(conditions))
    if kind in ("work", "each"):
        step.fails = draw(st.sampled_from(FAILURES))
        step.fails_in = draw(st.integers(0, 2))
    if kind == "each":
        step.items, step.limit = draw(st.integers(0, 4)), draw(st.integers(0, 2))
        streams = [parent for parent in parents if parent.kind == "numbers" and not parent.holds]
        if len(streams) > 0 and draw(st.integers(0, 3)) > 0:
            step.stream = streams[0].name
            step.is_any = False
            for arrow in step.after:
                if arrow.source == step.stream:
                    arrow.catch, arrow.when = "", None
    step.holds = wild and draw(st.integers(0, 5)) == 0
    return step


def _draw_defaults(draw: st.DrawFn, plan: Plan) -> None:
    """Make some edges default branches, where their source has others with a condition."""
    for step in plan.steps:
        leaving = [(at, arrow) for at in plan.steps for arrow in at.after if arrow.source == step.name]
        plain = [(at, arrow) for at, arrow in leaving if not arrow.catch]
        if sum(arrow.when is not None for _, arrow in plain) and draw(st.booleans()):
            for at, arrow in plain:
                if arrow.when is None and len(at.after) == 1 and not at.stream:
                    arrow.otherwise = True
                    break


def _draw_cycle(draw: st.DrawFn, plan: Plan, wild: bool) -> None:
    taken = {name for step in plan.steps if step.kind == "cycle" for name in plan.reach(step.target)}
    targets = [
        step
        for step in plan.steps
        if step.kind in ("work", "count") and (wild or (not step.is_any and _is_closed(plan, step, taken)))
    ]
    if not targets:
        return
    target = draw(st.sampled_from(targets))
    target.kind, target.fails = "count", ""
    for arrow in target.after:
        arrow.when = True if arrow.when == "bad" else arrow.when
    target.when = None if target.when == "bad" else target.when
    inside = sorted(plan.reach(target.name) if wild else plan.certain(target.name))
    sources = draw(st.lists(st.sampled_from(inside), min_size=1, max_size=2, unique=True))
    condition = f"below {target.name} {draw(st.integers(1, 4))}"
    cycle = Step(f"z{len(plan.steps)}", "cycle", target=target.name, limit=draw(st.integers(1, 4)))
    if len(sources) == 1:
        cycle.after = [Arrow(sources[0], when=condition)]
    else:
        cycle.after, cycle.when = [Arrow(source) for source in sources], condition
    plan.steps.append(cycle)
    if draw(st.booleans()):
        catch = draw(st.sampled_from(["CycleLimitExceeded", "Exception", "ValueError"]))
        plan.steps.append(Step(f"z{len(plan.steps)}", "work", own=7, after=[Arrow(cycle.name, catch)]))


def _is_closed(plan: Plan, target: Step, taken: set[str]) -> bool:
    """Whether what leads into its reach from outside is decided when it first begins, and no other cycle is near."""
    reach, parents = plan.reach(target.name), {arrow.source for arrow in target.after}
    outside = {arrow.source for step in plan.steps if step.name in reach for arrow in step.after} - reach
    return not reach & taken and outside <= parents
