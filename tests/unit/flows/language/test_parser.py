"""Flows from YAML: what they become, kind by kind and edge by edge."""

import pytest
from tests.unit.flows.writing import BOTH, SAMPLES, load, node, with_nodes

from holdfast.core.flow.definition import (
    After,
    ChildAction,
    CycleAction,
    Each,
    FailurePolicy,
    InterruptAction,
    RaiseAction,
    RetryRules,
    RunAction,
    RunRules,
    TriggerAction,
    WaitAction,
    graph_of,
)
from holdfast.core.flow.graph import Join
from holdfast.flows.language.checker import KnownNames
from holdfast.flows.language.parser import load_file


def test_the_order_flow_has_every_construct() -> None:
    loaded = load_file(SAMPLES / "order.yaml", KnownNames(workflows={"shipping"}))
    nodes = {one.id: one for one in loaded.definition.nodes}
    assert loaded.warnings == ()
    assert [one.id for one in loaded.definition.nodes] == sorted(nodes)
    assert (loaded.definition.name, loaded.definition.version) == ("order", "3")
    assert loaded.definition.input == {"order_id": "string", "cents": "integer", "items": "array"}
    assert loaded.definition.output == "done.output"
    assert nodes["received"].action == TriggerAction()
    assert nodes["charge"].action == RunAction(
        "shop.charge",
        {"id": "received.input.order_id", "cents": "received.input.cents"},
        rules=RunRules(queue="payments", start_to_close_ms=30_000),
    )
    assert nodes["pack"].action == RunAction("shop.pack", each=Each("received.input.items", 4))
    assert nodes["pack"].after == (After("charge"), After("reserve"))
    assert nodes["refund"].after == (After("charge", ("CardDeclined",)),)
    assert nodes["approval"].action == WaitAction("approved", 2 * 24 * 3_600_000)
    assert nodes["approval"].after == (After("pack", when="received.input.cents > 100000"),)
    assert nodes["again"].action == CycleAction("check", 3_600_000, 100)
    graph_of(loaded.definition)


def test_the_fox_flow_is_fine() -> None:
    definition = load_file(SAMPLES / "fox.yaml").definition
    assert [one.id for one in definition.nodes] == ["ate", "brown", "cleanup", "fox", "jumped", "quick", "slept"]


@pytest.mark.parametrize(
    ("line", "action"),
    [
        ("{run: a.b, after: start}", RunAction("a.b")),
        ("{run: a, after: start, input: start.input}", RunAction("a", "start.input")),
        ("{run: a, after: start, input: [start.input.x, 1, null]}", RunAction("a", ["start.input.x", 1, None])),
        ("{run: a, after: start, retry: {attempts: unlimited}}", RunAction("a", rules=RunRules(retry=RetryRules(0)))),
        (
            "{run: a, after: start, retry: {attempts: 3, initial: 500ms, backoff: 1.5, maximum: 1m, jitter: false}}",
            RunAction("a", rules=RunRules(retry=RetryRules(3, 500, 1.5, 60_000, False))),
        ),
        (
            "{run: a, after: start, retry: {attempts: 3, non_retryable: [ValueError]}}",
            RunAction("a", rules=RunRules(retry=RetryRules(3, non_retryable=("ValueError",)))),
        ),
        (
            "{run: a, after: start, schedule_to_start: 1, start_to_close: 1h30m, schedule_to_close: 1w, heartbeat: .5}",
            RunAction("a", rules=RunRules(None, None, 1_000, 5_400_000, 604_800_000, 500)),
        ),
        (
            "{flow: child, after: start, each: start.input.l, limit: 2, input: {a: item, b: index}, id: string(index)}",
            ChildAction("child", {"a": "item", "b": "index"}, Each("start.input.l", 2), "string(index)"),
        ),
        ("{flow: child, after: start, detached: true}", ChildAction("child", detached=True)),
        ("{wait: {event: e}, after: start}", WaitAction("e")),
        ("{wait: {timer: 90s}, after: start}", WaitAction(timeout=90_000)),
        ("{wait: {timer: start.input.seconds}, after: start}", WaitAction(timeout="start.input.seconds")),
        ("{wait: {event: e, timeout: start.input.t}, after: start}", WaitAction("e", "start.input.t")),
        (
            "{raise: {event: e, to: start.input.who, value: {x: start.input}}, after: start}",
            RaiseAction("e", "start.input.who", {"x": "start.input"}),
        ),
        ("{interrupt: self, after: start}", InterruptAction()),
        (
            "{interrupt: start.input.who, descendants: true, reason: too late, after: start}",
            InterruptAction("start.input.who", True, "too late"),
        ),
    ],
)
def test_each_kind_of_activity_is_read(line: str, action: object) -> None:
    assert node(line).action == action


def test_a_cycle_goes_back_to_an_ancestor() -> None:
    before = "  a: {run: a, after: start}\n"
    assert node("{cycle: a, after: a, when: a.output}", before).action == CycleAction("a")
    again = node("{cycle: a, after: a, delay: a.output.seconds, limit: 7}", before)
    assert again.action == CycleAction("a", "a.output.seconds", 7)


@pytest.mark.parametrize(
    ("line", "edges", "when"),
    [
        ("{run: x, after: a}", (After("a"),), ""),
        ("{run: x, after: [b, a]}", (After("a"), After("b")), ""),
        ("{run: x, after: {a: {}, b: null}}", (After("a"), After("b")), ""),
        ("{run: x, after: {a: {catch: E}}}", (After("a", ("E",)),), ""),
        ("{run: x, after: {a: {catch: [E, F], when: a.error}}}", (After("a", ("E", "F"), "a.error"),), ""),
        ("{run: x, after: {a: [{}, {catch: E}]}}", (After("a"), After("a", ("E",))), ""),
        ("{run: x, after: a, when: a.output}", (After("a", when="a.output"),), ""),
        ("{run: x, after: [a], when: true}", (After("a", when="true"),), ""),
        ("{run: x, after: [a, b], when: a.output}", (After("a"), After("b")), "a.output"),
        (
            "{run: x, after: {a: {when: a.output}}, when: start.input.x}",
            (After("a", when="a.output"),),
            "start.input.x",
        ),
    ],
)
def test_edges_and_conditions(line: str, edges: tuple[After, ...], when: str) -> None:
    it = node(line, BOTH)
    assert it.after == edges
    assert it.when == when


def test_joins_and_policies_and_default_branches() -> None:
    text = with_nodes(
        "a: {run: a, after: start, when: start.input.x > 1}",
        "b: {run: b, after: start, otherwise: true}",
        "c: {run: c, after: {start: {otherwise: true}}}",
        "d: {run: d, after: [a, b, c], join: any}",
    )
    definition = load(f"{text}version: 1.10\npolicy: fail_fast\noutput: {{a: a.output, n: 1}}\n")
    nodes = {one.id: one for one in definition.nodes}
    assert definition.version == "1.10"
    assert definition.policy is FailurePolicy.FAIL_FAST
    assert definition.output == {"a": "a.output", "n": 1}
    assert nodes["b"].after == (After("start", otherwise=True),) == nodes["c"].after
    assert nodes["d"].join is Join.ANY
