"""The definition of a flow: its nodes, the edges between them, and the action of each node.

A definition is plain data that was checked. Its canonical JSON is stored once, under its hash, and every instance names
the hash with which it started: a running instance keeps its definition when a new one is loaded.

A `Template` is JSON in which every string is an expression; other values stand for themselves. A `Span` is a duration:
a number of milliseconds, or an expression that gives seconds. Durations are written as a number of seconds or as a
string such as ``1h30m``.
"""

import math
import re
from collections.abc import Mapping
from enum import StrEnum
from hashlib import sha256
from typing import Any, Final, TypeAlias, TypeGuard

import msgspec

from holdfast.core.admission import EventPolicy
from holdfast.core.collation import Digit, padded
from holdfast.core.deadlines import LONGEST_DAYS, LONGEST_SECONDS
from holdfast.core.flow.graph import Graph, GraphEdge, Join


class FailurePolicy(StrEnum):
    """What an uncaught failure does to the rest of the flow (K4)."""

    DRAIN = "drain"
    FAIL_FAST = "fail_fast"


Template: TypeAlias = object
Span: TypeAlias = int | str
HASH_DIGITS: Final = 32
_RESPONSES: Final = re.compile(r"\s*([A-Za-z_][A-Za-z0-9_]*)\s*\.\s*responses\s*")
MOST_NODES: Final = 1_000
DEFAULT_CYCLE_LIMIT: Final = 1_000
"""K8: how often a cycle restarts before its node fails."""


class RetryRules(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """The retry policy of a node; fields that are None are those of its activity. `attempts` 0: unlimited."""

    attempts: int | None = None
    initial_ms: int | None = None
    backoff: float | None = None
    maximum_ms: int | None = None
    jitter: bool | None = None
    non_retryable: tuple[str, ...] | None = None


class RunRules(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """The options of a node for its activity; fields that are None are those of the activity."""

    queue: str | None = None
    retry: RetryRules | None = None
    schedule_to_start_ms: int | None = None
    start_to_close_ms: int | None = None
    schedule_to_close_ms: int | None = None
    heartbeat_ms: int | None = None
    pauses: bool | None = None


class Each(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Once for each item of a list, `limit` of them at a time (None: all at once), with the results in order.

    ``NODE.responses`` as `items` stands for the responses of a stream: each is an item as soon as it arrives (K10).
    """

    items: str
    limit: int | None = None

    @property
    def stream(self) -> str:
        """The node whose responses are the items; empty if the items are a list."""
        found = _RESPONSES.fullmatch(self.items)
        return "" if found is None else found[1]


class Hold(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """The node is held after it has run, until it is released or `timeout` has passed (K11)."""

    timeout: Span | None = None


class Action(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True, tag_field="kind"):
    """What a node does. Every kind of node is one subclass."""


class TriggerAction(Action, frozen=True, omit_defaults=True, tag="trigger"):
    """Where the flow begins. Its input is the input of the flow."""


class RunAction(Action, frozen=True, omit_defaults=True, tag="run"):
    """Runs an activity. `input` has its arguments: a mapping by name, a list by position, or one expression.

    Without `input` it is called without arguments; with `each`, with the item.
    """

    activity: str
    input: Template = None
    each: Each | None = None
    rules: RunRules = RunRules()


class ChildAction(Action, frozen=True, omit_defaults=True, tag="flow"):
    """Starts another flow, or a workflow in code, and waits for its end unless it is detached."""

    workflow: str
    input: Template = None
    each: Each | None = None
    id: str = ""
    """An expression; without one the id is derived from the parent's."""
    detached: bool = False


class WaitAction(Action, frozen=True, omit_defaults=True, tag="wait"):
    """Waits for an event, for a duration, or for an event with a timeout."""

    event: str = ""
    timeout: Span | None = None


class CycleAction(Action, frozen=True, omit_defaults=True, tag="cycle"):
    """Runs `target` and everything behind it once more, after `delay`, at most `limit` times (K8)."""

    target: str
    delay: Span = 0
    limit: int = DEFAULT_CYCLE_LIMIT


class RaiseAction(Action, frozen=True, omit_defaults=True, tag="raise"):
    """Raises an event to another instance."""

    event: str
    to: str
    value: Template = None


class InterruptAction(Action, frozen=True, omit_defaults=True, tag="interrupt"):
    """Ends this instance, or the one that `target` names, and with `descendants` the children of it."""

    target: str = ""
    """An expression that gives an id; empty for this instance."""
    descendants: bool = False
    reason: str = ""


AnyAction: TypeAlias = (
    TriggerAction | RunAction | ChildAction | WaitAction | CycleAction | RaiseAction | InterruptAction
)


class After(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """An edge from `source` to the node that has it.

    `catch` makes it an error edge. `when` decides once the source has finished. `otherwise` is the default branch:
    taken if the source completed and no edge of it that has a `when` was.
    """

    source: str
    catch: tuple[str, ...] | None = None
    when: str = ""
    otherwise: bool = False


class Node(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """One activity of a flow. `when` here decides once the join is satisfied; a false one skips the node."""

    id: str
    action: AnyAction
    after: tuple[After, ...] = ()
    join: Join = Join.ALL
    when: str = ""
    line: int = 0
    """The line in YAML, for messages. It is not part of the hash."""
    hold: Hold | None = None
    """None: the nodes after it start when it completes."""

    @property
    def stream(self) -> str:
        """The node whose responses are its items; empty if it has no such items."""
        action = self.action
        each = action.each if isinstance(action, RunAction | ChildAction) else None
        return "" if each is None else each.stream


class FlowDefinition(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True, dict=True):
    """A whole flow. The nodes are in the order of their digits (K1)."""

    name: str
    nodes: tuple[Node, ...]
    version: str = ""
    input: dict[str, str] = {}
    """The fields that the flow takes, each with the name of its JSON type."""
    policy: FailurePolicy = FailurePolicy.DRAIN
    output: Template = None
    event_policy: EventPolicy = EventPolicy.MAILBOX
    """Whether events for which no node waits are kept or dropped (G6)."""


_encoder: Final = msgspec.json.Encoder(order="deterministic")
_decoder: Final = msgspec.json.Decoder(FlowDefinition)


def encode_definition(definition: FlowDefinition) -> bytes:
    """Its canonical JSON: equal definitions give equal bytes."""
    return _encoder.encode(definition)


def decode_definition(data: bytes) -> FlowDefinition:
    """A stored definition."""
    return _decoder.decode(data)


def definition_hash(definition: FlowDefinition) -> str:
    """The hash under which a definition is stored. It does not depend on lines."""
    nodes = tuple(msgspec.structs.replace(node, line=0) if node.line else node for node in definition.nodes)
    return sha256(encode_definition(msgspec.structs.replace(definition, nodes=nodes))).hexdigest()[:HASH_DIGITS]


def first_key(definition: FlowDefinition) -> str:
    """K1: the key of an instance before its first turn."""
    return padded(Digit.PENDING.character * len(definition.nodes))


def nodes_by_id(definition: FlowDefinition) -> Mapping[str, Node]:
    """The nodes by id."""
    return {node.id: node for node in definition.nodes}


def graph_of(definition: FlowDefinition) -> Graph:
    """The graph of a definition, checked."""
    trigger = next(node.id for node in definition.nodes if isinstance(node.action, TriggerAction))
    edges = (
        GraphEdge(
            after.source,
            node.id,
            after.catch,
            bool(after.when),
            after.otherwise,
            carries_responses=after.catch is None and after.source == node.stream,
        )
        for node in definition.nodes
        for after in node.after
    )
    guarded = (node.id for node in definition.nodes if node.when)
    held = (node.id for node in definition.nodes if node.hold is not None)
    return Graph.of(trigger, {node.id: node.join for node in definition.nodes}, edges, guarded, held)


def is_list(value: object) -> TypeGuard[list[Any]]:
    """Whether it is an array."""
    return isinstance(value, list)


def is_map(value: object) -> TypeGuard[dict[str, Any]]:
    """Whether it is an object."""
    return isinstance(value, dict)


UNITS_MS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
WHAT: Final = "a number of seconds or a string such as 30s, 2d or 1h30m"
_PART: Final = re.compile(r"([0-9]{1,12}(?:\.[0-9]{1,6})?)(ms|s|m|h|d|w)")
_WHOLE: Final = re.compile(rf"(?:{_PART.pattern})+")


def is_span(text: str) -> bool:
    """Whether `text` is a duration and not an expression."""
    return _WHOLE.fullmatch(text) is not None


def span_ms(value: str | float, what: str, *, least_ms: int = 0) -> int:
    """`value` in milliseconds, rounded up; a `ValueError` with the reason if it is not a duration."""
    if isinstance(value, bool) or (isinstance(value, str) and not is_span(value)):
        raise ValueError(f"{what} must be {WHAT}, not {value!r}")
    if isinstance(value, str):
        length = sum(float(number) * UNITS_MS[unit] for number, unit in _PART.findall(value))
    else:
        length = value * 1_000
    if not math.isfinite(length) or not 0 <= length <= LONGEST_SECONDS * 1_000:
        raise ValueError(f"{what} must be 0 to {LONGEST_DAYS:,} days, not {value}")
    whole = math.ceil(round(length, 3))
    if whole < least_ms:
        raise ValueError(f"{what} must be longer than 0; leave it out for no limit")
    return whole


def show_span(length_ms: int) -> str | float:
    """A duration as a person writes it, the largest units first."""
    if length_ms == 0:
        return 0
    parts: list[str] = []
    for unit in ("w", "d", "h", "m", "s", "ms"):
        count, length_ms = divmod(length_ms, UNITS_MS[unit])
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts)
