"""The builder: the same flow in Python and in YAML is the same flow, and mistakes give the same messages."""

import sys
from collections.abc import Callable
from datetime import timedelta
from subprocess import run
from typing import Any

import pytest
from tests.unit.flows.writing import SAMPLES

import holdfast as hf
from holdfast.authoring.registry import Registry
from holdfast.errors import DuplicateName, FlowError, InvalidOption


class TooTired(Exception):
    """What the fox may be."""


@hf.activity(name="tasks.brown")
def brown() -> None: ...


@hf.activity(name="tasks.fox")
def fox(speed: int) -> dict[str, int]:
    return {"energy": speed}


@hf.workflow
async def shipping() -> None: ...


def test_the_fox_flow_is_the_same_in_python_and_in_yaml() -> None:
    flow = hf.Flow("fox")
    quick = flow.trigger("quick")
    flow.run("brown", brown, after=quick)
    foxy = flow.run("fox", fox, after="brown", input={"speed": quick.input.speed})
    flow.run("jumped", "tasks.jump", after=foxy, when=foxy.output.energy > 3)
    slept = flow.run("slept", "tasks.sleep", after=foxy.when("fox.output.energy <= 3"))
    flow.wait("ate", event="dinner", timeout=timedelta(hours=1), after=slept)
    flow.run("cleanup", "tasks.sweep", after=flow["fox"].failed(TooTired, Exception))
    loaded = hf.Flow.load(SAMPLES / "fox.yaml")
    assert flow.hash == loaded.hash
    assert (flow.name, flow.version, flow.warnings) == ("fox", "", ())
    assert flow.activities == (brown, fox)
    assert loaded.line_of("fox", "input.speed") == 5
    assert flow.line_of("fox") == 0


def test_the_order_flow_is_the_same_in_python_and_in_yaml() -> None:
    flow = hf.Flow("order", version="3")
    received = flow.trigger("received", input={"order_id": "string", "cents": "integer", "items": "array"})
    order = {"id": received.input.order_id}
    reserve = flow.run("reserve", "shop.reserve", after=received, input=order, retry={"attempts": 5, "initial": 0.5})
    charge = flow.run(
        "charge",
        "shop.charge",
        after=received,
        input={**order, "cents": received.input.cents},
        queue="payments",
        start_to_close="30s",
    )
    flow.run("refund", "shop.release", after=charge.failed("CardDeclined"))
    pack = flow.run("pack", "shop.pack", each=received.input.items, limit=4, after=[reserve, charge])
    approval = flow.wait("approval", event="approved", timeout="2d", after=pack, when=received.input.cents > 100_000)
    ship = flow.child("ship", "shipping", after=[pack, approval])
    check = flow.run("check", "shop.delivered", after=ship)
    flow.cycle("again", check, after=check, when=check.output == False, delay=3_600, limit=100)  # noqa: E712
    done = flow.run("done", "shop.close", after=check, when=check.output == True)  # noqa: E712
    flow.policy("drain")
    flow.output(done.output)
    loaded = hf.Flow.load(SAMPLES / "order.yaml")
    assert flow.hash == loaded.hash
    assert hf.Flow.parse(flow.to_yaml()).hash == loaded.hash
    assert loaded.line_of("again", "after.check.when") == 15


def test_other_kinds_and_edges() -> None:
    flow = hf.Flow("kinds")
    start = flow.trigger("start")
    first = flow.run("first", brown, after=start, retry=hf.Retry(attempts=None, non_retryable=(ValueError, TooTired)))
    flow.child("ship", shipping, after=start, detached=True, id="start.input.id", input=[1, flow.text("x"), None])
    flow.raise_event("tell", "shipped", to=start.input.who, value={"a": start.input["odd name"][0]}, after=start)
    flow.interrupt("stop", after=first.failed(), descendants=True, reason="no use")
    flow.interrupt("other", "start.input.who", after=first.when("first.output"))
    flow.run("rest", brown, after=first.otherwise())
    flow.run("last", brown, after=["rest", first.failed("E"), first], join="any", when="rest.output")
    flow.wait("later", timer=start.input.seconds, after=[start])
    flow.output({"n": 1, "list": [first.output]})
    text = flow.to_yaml()
    assert hf.Flow.parse(text).hash == flow.hash
    assert 'ship: {flow: shipping, input: [1, "\\"x\\"", null], id: start.input.id, detached: true' in text
    assert "attempts: unlimited" in text
    assert "after: {first: [{}, {catch: [E]}], rest: {}}" in text
    assert flow.workflows == (shipping,)


def test_conditions_are_written_in_python() -> None:
    step = hf.Flow("f").trigger("a")
    assert str(step.output.x == "it's") == 'a.output.x == "it\'s"'
    assert str(step.output.x != None) == "a.output.x != null"  # noqa: E711
    assert str((step.output.x >= 1) & (step.input.y < 2.5)) == "a.output.x >= 1 && (a.input.y < 2.5)"
    assert str(~(step.output.x <= [1, {"k": step.input}])) == '!(a.output.x <= [1, {"k": a.input}])'
    assert str((step.output > 1) | step.error["in"]) == '(a.output > 1) || (a.error["in"])'
    with pytest.raises(InvalidOption, match="evaluated when the flow runs"):
        bool(step.output.x == 1)
    with pytest.raises(InvalidOption, match="cannot hold"):
        _ = step.output == object()


def test_mistakes_are_told_all_at_once_when_the_flow_is_first_used() -> None:
    flow = hf.Flow("wrong")
    flow.trigger("start")
    flow.run("a", "x", after="strat", heartbeat="soon")
    flow.run("b", "x", after="start", when="nobody.output >")
    with pytest.raises(FlowError) as caught:
        _ = flow.definition
    assert sorted(str(caught.value).splitlines()) == [
        "wrong: a: heartbeat must be a number of seconds or a string such as 30s, 2d or 1h30m, not 'soon'",
        'wrong: a: there is no activity "strat" for it to come after (did you mean start?)',
        'wrong: b: when: "nobody.output >" cannot be read, column 16: unexpected end of the expression',
    ]


def test_what_cannot_be_said_is_refused_where_it_is_said() -> None:
    flow = hf.Flow("f")
    start = flow.trigger("start")
    with pytest.raises(FlowError, match="two activities have the id 'start'"):
        flow.trigger("start")
    with pytest.raises(InvalidOption, match="is not a JSON value"):
        flow.run("a", brown, after=start, input={"x": object()})
    with pytest.raises(InvalidOption, match="a key must be a string"):
        flow.run("a", brown, after=start, input={1: 2})
    with pytest.raises(InvalidOption, match=r"run\(\) takes activity functions"):
        flow.run("a", test_conditions_are_written_in_python, after=start)  # type: ignore[arg-type]
    with pytest.raises(InvalidOption, match="after takes steps"):
        flow.run("a", brown, after=[5])  # type: ignore[list-item]
    with pytest.raises(InvalidOption, match=r"failed\(\) takes exception types"):
        start.failed(5)  # type: ignore[arg-type]
    with pytest.raises(KeyError):
        _ = flow["nobody"]
    assert flow.definition.name == "f"
    with pytest.raises(FlowError, match="in use"):
        flow.run("late", brown, after=start)


@pytest.mark.parametrize("after", [None, 5, {"start": {"catch": ["E"]}}, hf.Flow("g").trigger("start").output])
def test_what_nothing_can_come_after_is_refused(after: Any) -> None:
    flow = hf.Flow("f")
    flow.trigger("start")
    with pytest.raises(InvalidOption, match="after takes steps"):
        flow.run("a", brown, after=after)


BUILDER_CALLS: dict[str, Callable[[hf.Flow, Any], object]] = {
    "run": lambda flow, argument: flow.run("it", argument, after="start"),
    "child": lambda flow, argument: flow.child("it", argument, after="start"),
    "wait": lambda flow, argument: flow.wait("it", event=argument, after="start"),
    "cycle": lambda flow, argument: flow.cycle("it", argument, after="start"),
    "raise_event": lambda flow, argument: flow.raise_event("it", argument, to="start.input", after="start"),
    "raise_event to": lambda flow, argument: flow.raise_event("it", "e", to=argument, after="start"),
    "interrupt": lambda flow, argument: flow.interrupt("it", argument, after="start"),
}


@pytest.mark.parametrize("method", BUILDER_CALLS)
def test_None_as_the_defining_argument_of_a_node_is_refused(method: str) -> None:
    flow = hf.Flow("f")
    flow.trigger("start")

    def build() -> None:
        BUILDER_CALLS[method](flow, None)
        flow.definition  # noqa: B018  # the first use

    with pytest.raises((InvalidOption, FlowError), match=r"not None|it needs"):
        build()


@pytest.mark.parametrize("node_id", [5, None, True, b"it", hf.Flow("g").trigger("start")])
def test_an_id_or_a_name_that_is_not_a_string_is_refused_at_the_call(node_id: Any) -> None:
    flow = hf.Flow("f")
    start = flow.trigger("start")
    additions: list[Callable[[], object]] = [
        lambda: flow.trigger(node_id),
        lambda: flow.run(node_id, "x", after=start),
        lambda: flow.wait(node_id, timer=1, after=start),
    ]
    for add in additions:
        with pytest.raises(InvalidOption, match="the id of an activity must be a string, not"):
            add()
    with pytest.raises(hf.errors.InvalidId, match="the name of a flow must be a string, not"):
        hf.Flow(node_id)


def test_edges_of_python_have_the_messages_of_yaml() -> None:
    flow = hf.Flow("f")
    start = flow.trigger("start")
    flow.run("one", "x", after=[start, start])
    flow.run("two", "x", after=[start.failed("A"), start.failed("B"), start])
    flow.run("three", "x", after=start.when(" "))
    with pytest.raises(FlowError) as caught:
        flow.definition  # noqa: B018  # the first use
    assert [str(problem) for problem in caught.value.problems] == [
        'one: after: "start" occurs twice; join the conditions, or the errors to catch',
        'two: after: "start" occurs twice; join the conditions, or the errors to catch',
        'three: after.start: when must be an expression, not " "',
    ]


def test_options_of_the_wrong_type_are_refused() -> None:
    flow = hf.Flow("f")
    start = flow.trigger("start")
    with pytest.raises(InvalidOption, match=r"retry takes hf\.Retry\(\.\.\.\) or a mapping such as .*, not 5"):
        flow.run("a", brown, after=start, retry=5)  # type: ignore[arg-type]
    with pytest.raises(InvalidOption, match="input takes fields and their types"):
        hf.Flow("g").trigger("start", input=5)  # type: ignore[arg-type]
    flow.run("b", brown, after=start, retry={"non_retryable": "TooTired"})
    assert "non_retryable: [TooTired]" in flow.to_yaml()


@pytest.mark.parametrize("number", [float("inf"), float("-inf"), float("nan")])
def test_expressions_hold_finite_numbers_only(number: float) -> None:
    step = hf.Flow("f").trigger("a")
    with pytest.raises(InvalidOption, match="finite numbers only"):
        _ = step.output > number
    with pytest.raises(InvalidOption, match="finite numbers only"):
        hf.Flow.text([{"x": number}])


def test_a_reference_cannot_be_gone_over() -> None:
    step = hf.Flow("f").trigger("a")
    with pytest.raises(TypeError, match=r"a\.output\.items has a value when the flow runs; .*each="):
        iter(step.output["items"])
    with pytest.raises(TypeError, match="not iterable"):
        _ = 3 in step.output  # type: ignore[operator]


def test_a_second_trigger_that_is_refused_changes_nothing() -> None:
    flow = hf.Flow("f")
    flow.trigger("start", input={"cents": "integer"})
    with pytest.raises(FlowError, match="two activities have the id 'start'"):
        flow.trigger("start", input={"other": "string"})
    assert flow.definition.input == {"cents": "integer"}
    with pytest.raises(FlowError, match="in use"):
        flow.trigger("late", input={"other": "string"})
    assert flow.definition.input == {"cents": "integer"}


def test_a_node_that_is_refused_leaves_no_problem() -> None:
    flow = hf.Flow("f")
    start = flow.trigger("start")
    flow.run("a", brown, after=start)
    with pytest.raises(FlowError, match="two activities have the id 'a'"):
        flow.run("a", brown, after=start, heartbeat="soon")
    with pytest.raises(InvalidOption, match="is not a JSON value"):
        flow.run("b", brown, after=start, heartbeat="soon", input=object())
    assert [node.id for node in flow.definition.nodes] == ["a", "start"]


def test_two_versions_of_a_flow_are_told_by_their_versions() -> None:
    several = [hf.Flow("f", version) for version in ("1", "2")]
    for flow in several:
        flow.trigger("start")
    with pytest.raises(DuplicateName, match=r"a flow of version '1' with the hash .* and a flow of version '2' with"):
        Registry(flows=several)
    code = hf.workflow(name="f")(shipping.fn)
    with pytest.raises(DuplicateName, match=f"in {__name__} and a flow of version '1' with .*another name="):
        Registry(workflows=[code], flows=several[:1])


def test_names_of_activities_are_checked_where_they_are_known() -> None:
    text = "flow: f\nactivities:\n  a: {trigger: true}\n  b: {run: tasks.fxo, after: a}\n"
    with pytest.raises(FlowError, match=r"did you mean tasks\.fox\?"):
        hf.Flow.parse(text, activities=[fox])
    named = text.replace("tasks.fxo", f"{__name__.rpartition('.')[2]}.fox")
    assert hf.Flow.parse(named, modules=[sys.modules[__name__]]).name == "f"
    assert hf.Flow.parse(text).name == "f"


def test_an_engine_has_what_a_flow_was_built_from_and_serves_the_queues_it_names() -> None:
    inner = hf.Flow("inner")
    inner.run("one", brown, after=inner.trigger("start"), queue="slow")
    outer = hf.Flow("outer")
    begin = outer.trigger("start")
    outer.run("fox", fox, after=begin, input=[1], queue="payments")
    outer.child("inner", inner, after=begin)
    outer.child("ship", shipping, after=begin)
    registry = Registry(flows=[outer])
    registry.check()
    assert sorted(registry.activities) == ["tasks.brown", "tasks.fox"]
    assert sorted(registry.workflows) == ["inner", "outer", "shipping"]
    assert registry.queues == ("default", "payments", "slow")


def test_importing_holdfast_loads_neither_flows_nor_yaml_nor_cel() -> None:
    code = "import sys, holdfast; print([n for n in ('holdfast.flows', 'yaml', 'cel_expr_python') if n in sys.modules])"
    assert run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_K10_K11_holds_and_responses_are_the_same_in_python_and_in_yaml() -> None:
    built = hf.Flow("f")
    start = built.trigger("start")
    quotes = built.run("quotes", "quotes", after=start)
    price = built.run("price", "price", each=quotes.responses, limit=2, after=quotes, hold=True)
    built.wait("asked", event="e", after=price, hold={"timeout": timedelta(days=1)})
    built.child("inner", "inner", after=price, hold={"timeout": start.input.seconds})
    built.event_policy("drop_unsubscribed")
    loaded = hf.Flow.parse("""
flow: f
event_policy: drop_unsubscribed
activities:
  start: {trigger: true}
  quotes: {run: quotes, after: start}
  price: {run: price, each: quotes.responses, limit: 2, after: quotes, hold: true}
  asked: {wait: {event: e}, after: price, hold: {timeout: 1d}}
  inner: {flow: inner, after: price, hold: {timeout: start.input.seconds}}
""")
    assert built.hash == loaded.hash
    assert repr(quotes) == "NodeRef('quotes')"
    assert repr(quotes.responses) == "ExpressionRef('quotes.responses')"
    unheld = hf.Flow.parse(loaded.to_yaml().replace(", hold: true", ""))
    assert unheld.hash != loaded.hash


@pytest.mark.parametrize("hold", [5, "soon", {"timeout": -1}])
def test_K11_a_hold_that_cannot_be_is_found_in_python(hold: Any) -> None:
    built = hf.Flow("f")
    built.run("it", "x", after=built.trigger("start"), hold=hold)
    with pytest.raises(FlowError, match="hold"):
        built.to_yaml()
