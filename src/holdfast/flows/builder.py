"""Builds the definition of a flow in Python: one method for each kind of node.

A method adds a `Node` to the definition at once. Its arguments have the names of the keys of YAML and are read by the
same functions (`holdfast.flows.language.node_kinds`), so that a flow in Python and the same flow in YAML have the same
definition. A method returns a `NodeRef`: later nodes name it in `after`, and its `output` in expressions.

An argument that is not JSON raises at its call. All other problems are collected and raised as one `FlowError` when
the flow is first used.
"""

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from datetime import timedelta
from enum import IntEnum
from typing import Any, TypeAlias, TypedDict, cast

from holdfast.authoring.activity import Activity, AnyActivity
from holdfast.authoring.call_options import OnExhausted
from holdfast.authoring.definition import Definition
from holdfast.authoring.retry import Retry
from holdfast.authoring.validation import checked_name
from holdfast.authoring.workflow import AnyWorkflow, Workflow
from holdfast.core.admission import EventPolicyOption
from holdfast.core.flow.definition import After, FlowDefinition, Node, TriggerAction
from holdfast.errors import FlowError, FlowProblem, InvalidOption
from holdfast.flows.expressions.scanner import KEYWORDS
from holdfast.flows.language.checker import check_into
from holdfast.flows.language.fields import Fields
from holdfast.flows.language.node_kinds import KINDS, UNLIMITED, node_with_edges, read_definition
from holdfast.flows.language.problems import Problems
from holdfast.flows.libraries import require_libraries
from holdfast.flows.workflow import FlowWorkflow
from holdfast.payloads.failures import qualified_name


class _Binding(IntEnum):
    """The precedence of the outermost operator of an expression in CEL. A lower precedence needs brackets."""

    OR = 0
    AND = 1
    COMPARISON = 2
    NOT = 3
    PATH = 4


class ExpressionRef:
    """An expression that is written in Python: ``fox.output.energy > 3``. It has a value once the flow runs.

    Fields are attributes or items; ``&``, ``|`` and ``~`` stand for and, or and not. ``str()`` is the expression.
    """

    __slots__ = ("_binding", "_text")

    def __init__(self, text: str, binding: _Binding = _Binding.PATH) -> None:
        self._text = text
        self._binding = binding

    def __getattr__(self, name: str) -> "ExpressionRef":
        if name.startswith("__"):
            raise AttributeError(name)  # Python looks for special methods, not for fields
        return self[name]

    def __getitem__(self, key: str | int) -> "ExpressionRef":
        whole = self._inside(_Binding.PATH)
        if isinstance(key, str) and key.isidentifier() and key.isascii() and key not in KEYWORDS:
            return ExpressionRef(f"{whole}.{key}")
        return ExpressionRef(f"{whole}[{literal(key)}]")

    def __eq__(self, other: object) -> "ExpressionRef":  # type: ignore[override]  # evaluated when the flow runs
        return self._compared("==", other)

    def __ne__(self, other: object) -> "ExpressionRef":  # type: ignore[override]  # evaluated when the flow runs
        return self._compared("!=", other)

    def __lt__(self, other: object) -> "ExpressionRef":
        return self._compared("<", other)

    def __le__(self, other: object) -> "ExpressionRef":
        return self._compared("<=", other)

    def __gt__(self, other: object) -> "ExpressionRef":
        return self._compared(">", other)

    def __ge__(self, other: object) -> "ExpressionRef":
        return self._compared(">=", other)

    def __and__(self, other: "ExpressionRef | bool") -> "ExpressionRef":
        return ExpressionRef(f"{self._inside(_Binding.AND)} && {_condition(other, '&')}", _Binding.AND)

    def __or__(self, other: "ExpressionRef | bool") -> "ExpressionRef":
        left = self._text if self._binding is _Binding.OR else f"({self._text})"
        return ExpressionRef(f"{left} || {_condition(other, '|', always=True)}", _Binding.OR)

    def __invert__(self) -> "ExpressionRef":
        return ExpressionRef(f"!({self._text})", _Binding.NOT)

    def __iter__(self) -> Iterator["ExpressionRef"]:
        raise TypeError(
            f"{self._text} has a value when the flow runs; to run a step for each of its items, use each=..."
        )

    def __bool__(self) -> bool:
        raise InvalidOption(f"{self._text} is evaluated when the flow runs; combine conditions with &, | and ~")

    def __hash__(self) -> int:
        return hash(self._text)

    def __str__(self) -> str:
        return self._text

    def __repr__(self) -> str:
        return f"ExpressionRef({self._text!r})"

    def _compared(self, operator: str, other: object) -> "ExpressionRef":
        return ExpressionRef(f"{self._inside(_Binding.NOT)} {operator} {_operand(other)}", _Binding.COMPARISON)

    def _inside(self, least: _Binding) -> str:
        """Its text as a part of another expression, in brackets if its precedence is lower."""
        return self._text if self._binding >= least else f"({self._text})"


class NodeRef:
    """A node of a flow that is being built. Later nodes can read its `input`, `output` and `error`.

    `responses` is for the `each` of a node after it: one item for each value that its activity yields.
    """

    def __init__(self, node_id: str) -> None:
        self.id = node_id
        self.input = ExpressionRef(f"{node_id}.input")
        self.output = ExpressionRef(f"{node_id}.output")
        self.error = ExpressionRef(f"{node_id}.error")
        self.responses = ExpressionRef(f"{node_id}.responses")

    def failed(self, *errors: type[BaseException] | str) -> After:
        """The edge that is taken if it fails with one of these errors; without arguments, with any error."""
        return After(self.id, catch=tuple(_error_name(error) for error in errors) or ("Exception",))

    def when(self, condition: "str | ExpressionRef") -> After:
        """The edge that is taken if it completes and the condition holds."""
        return After(self.id, when=str(condition))

    def otherwise(self) -> After:
        """The edge that is taken if it completes and no edge of it with a condition is taken."""
        return After(self.id, otherwise=True)

    def __repr__(self) -> str:
        return f"NodeRef({self.id!r})"


EdgeArgument: TypeAlias = str | NodeRef | After
EdgeArguments: TypeAlias = EdgeArgument | Sequence[EdgeArgument]
"""The sources of a node: ids, nodes, and edges such as ``fox.failed(TooTired)``."""


def _error_name(error: object) -> str:
    if isinstance(error, type) and issubclass(error, BaseException):
        return error.__name__
    if isinstance(error, str) and error:
        return error
    raise InvalidOption(f"failed() takes exception types or their names, not {error!r}")


def edges_of(after: EdgeArguments) -> list[After]:
    """The edges of an argument `after`."""
    if isinstance(after, Iterable) and not isinstance(after, str | Mapping | ExpressionRef):
        return [_edge(one) for one in after]
    return [_edge(after)]


def _edge(one: object) -> After:
    match one:
        case After():
            return one
        case NodeRef():
            return After(one.id)
        case str():
            return After(one)
        case _:
            raise InvalidOption(f"after takes steps, their ids, or edges such as step.failed(), not {one!r}")


def literal(value: object) -> str:
    """A value as an expression: a string in quotes, a list in brackets."""
    match value:
        case ExpressionRef():
            return str(value)
        case float() if not math.isfinite(value):
            raise InvalidOption(f"an expression holds finite numbers only, not {value!r}")
        case None | bool() | int() | float() | str():
            return json.dumps(value, ensure_ascii=False, allow_nan=False)
        case list() | tuple():
            return f"[{', '.join(map(literal, cast('Sequence[Any]', value)))}]"
        case dict():
            fields = cast("dict[str, Any]", value).items()
            return f"{{{', '.join(f'{literal(str(key))}: {literal(one)}' for key, one in fields)}}}"
        case _:
            raise InvalidOption(f"an expression cannot hold {value!r}")


def _operand(value: object) -> str:
    return value._inside(_Binding.PATH) if isinstance(value, ExpressionRef) else literal(value)  # noqa: SLF001  # of this module


def _condition(value: object, operator: str, *, always: bool = False) -> str:
    """The right operand of ``&`` and ``|``."""
    if not isinstance(value, ExpressionRef | bool):
        raise InvalidOption(f"{operator} combines conditions such as (step.output > 3), not {value!r}")
    return f"({literal(value)})" if always else _operand(value)


ConditionArgument: TypeAlias = str | ExpressionRef
Length: TypeAlias = float | timedelta | str | ExpressionRef
"""A number of seconds, a timedelta, a string such as ``1h30m``, or an expression that gives seconds."""


class HoldFields(TypedDict):
    """How long a node is held at most. After that it fails with a `TimeoutError`."""

    timeout: Length


HoldArgument: TypeAlias = bool | HoldFields
"""Whether a node is held after it has run, until ``handle.release(node)``; ``{"timeout": "1d"}`` limits the time."""


class RetryFields(TypedDict, total=False):
    """The fields that differ from the activity's own `Retry`."""

    attempts: int | str
    initial: Length
    backoff: float
    maximum: Length
    jitter: bool
    non_retryable: Sequence[type[BaseException] | str]


class FlowBuilder(FlowWorkflow):
    """Adds nodes to the definition of a flow until the flow is used."""

    def __init__(self, name: str, version: str = "") -> None:
        require_libraries()
        super().__init__(checked_name(name, "a flow"), version)
        self._nodes: dict[str, Node] = {}
        self._header: dict[str, object] = {"version": version} if version else {}
        """The fields of the flow itself, as YAML names them."""
        self._problems = Problems()
        """The problems of the nodes that were added."""
        self._in_use = False
        self._activities: dict[str, Activity[..., Any]] = {}
        self._workflows: dict[str, Workflow[..., Any]] = {}

    @property
    def activities(self) -> tuple[Activity[..., Any], ...]:
        """The activities that were given as objects, not by name: an engine with the flow registers them."""
        return tuple(self._activities.values())

    @property
    def workflows(self) -> tuple[Workflow[..., Any], ...]:
        """The flows and workflows that were given as objects, not by name."""
        return tuple(self._workflows.values())

    @property
    def bundled_code(self) -> tuple[Definition, ...]:
        return (*self.activities, *self.workflows)

    def __getitem__(self, node_id: str) -> NodeRef:
        """A node that was added before."""
        if node_id not in self._nodes:
            raise KeyError(node_id)
        return NodeRef(node_id)

    @staticmethod
    def text(value: object) -> str:
        """A value as an expression. A string in `input` is an expression; ``text("x")`` is the string itself."""
        return literal(value)

    def trigger(self, node_id: str, *, input: Mapping[str, str] | None = None) -> NodeRef:  # noqa: A002  # as in YAML
        """Add the first node. `input` has the fields that the flow takes, such as ``{"cents": "integer"}``."""
        if input is not None and not isinstance(cast("object", input), Mapping):
            raise InvalidOption(f"input takes fields and their types, such as {{'cents': 'integer'}}, not {input!r}")
        self._refuse(node_id)
        declared = None if input is None else plain_value(input, f"{self.name}: {node_id}")
        self._add_node(Node(node_id, TriggerAction()))
        if declared is not None:
            self._header["input"] = declared
        return NodeRef(node_id)

    def run(
        self,
        node_id: str,
        activity: AnyActivity | str,
        *,
        after: EdgeArguments,
        input: object = None,  # noqa: A002  # as in YAML
        when: ConditionArgument | None = None,
        otherwise: bool = False,
        join: str | None = None,
        hold: HoldArgument = False,
        each: ConditionArgument | None = None,
        limit: int | None = None,
        queue: str | None = None,
        retry: Retry | RetryFields | None = None,
        schedule_to_start: float | timedelta | str | None = None,
        start_to_close: float | timedelta | str | None = None,
        schedule_to_close: float | timedelta | str | None = None,
        heartbeat: float | timedelta | str | None = None,
        on_exhausted: OnExhausted | None = None,
    ) -> NodeRef:
        """Run an activity. `input` has its arguments: a mapping by name, a list by position, or one expression.

        With `each` it runs once for each item of that list, `limit` of them at a time; with ``each=node.responses``
        once for each value that the activity of `node` yields, as it arrives.
        """
        if isinstance(activity, Activity):
            self._activities[activity.name] = activity
        arguments = {
            "run": _name_of(activity, Activity, "run"),
            **_common(when, otherwise=otherwise, join=join, hold=hold),
            "input": input,
            "each": each,
            "limit": limit,
            "queue": queue,
            "retry": _retry(retry),
            "schedule_to_start": schedule_to_start,
            "start_to_close": start_to_close,
            "schedule_to_close": schedule_to_close,
            "heartbeat": heartbeat,
            "on_exhausted": on_exhausted,
        }
        return self._add(node_id, "run", after, arguments)

    def child(
        self,
        node_id: str,
        flow: AnyWorkflow | str,
        *,
        after: EdgeArguments,
        input: object = None,  # noqa: A002  # as in YAML
        id: ConditionArgument | None = None,  # noqa: A002  # as in YAML
        detached: bool = False,
        when: ConditionArgument | None = None,
        otherwise: bool = False,
        join: str | None = None,
        hold: HoldArgument = False,
        each: ConditionArgument | None = None,
        limit: int | None = None,
    ) -> NodeRef:
        """Start another flow, or a workflow in code, and wait for its end unless it is `detached`."""
        if isinstance(flow, Workflow):
            self._workflows[flow.name] = flow
        arguments = {
            "flow": _name_of(flow, Workflow, "child"),
            **_common(when, otherwise=otherwise, join=join, hold=hold),
            "input": input,
            "id": id,
            "detached": detached or None,
            "each": each,
            "limit": limit,
        }
        return self._add(node_id, "flow", after, arguments)

    def wait(
        self,
        node_id: str,
        *,
        after: EdgeArguments,
        event: str | None = None,
        timeout: Length | None = None,
        timer: Length | None = None,
        when: ConditionArgument | None = None,
        otherwise: bool = False,
        join: str | None = None,
        hold: HoldArgument = False,
    ) -> NodeRef:
        """Wait for an `event`, at most for `timeout`; or for the duration of a `timer`."""
        waits = {"event": event, "timeout": timeout, "timer": timer}
        return self._add(
            node_id, "wait", after, {"wait": _given(waits), **_common(when, otherwise=otherwise, join=join, hold=hold)}
        )

    def cycle(
        self,
        node_id: str,
        target: str | NodeRef,
        *,
        after: EdgeArguments,
        when: ConditionArgument | None = None,
        otherwise: bool = False,
        join: str | None = None,
        hold: HoldArgument = False,
        delay: Length | None = None,
        limit: int | None = None,
    ) -> NodeRef:
        """Run `target` and everything behind it once more, after `delay`, at most `limit` times."""
        arguments = {
            "cycle": target.id if isinstance(target, NodeRef) else target,
            **_common(when, otherwise=otherwise, join=join, hold=hold),
            "delay": delay,
            "limit": limit,
        }
        return self._add(node_id, "cycle", after, arguments)

    def raise_event(
        self,
        node_id: str,
        event: str,
        *,
        to: ConditionArgument,
        after: EdgeArguments,
        value: object = None,
        when: ConditionArgument | None = None,
        otherwise: bool = False,
        join: str | None = None,
        hold: HoldArgument = False,
    ) -> NodeRef:
        """Raise an event to the instance whose id `to` gives."""
        raised = _given({"event": event, "to": to, "value": value})
        return self._add(
            node_id, "raise", after, {"raise": raised, **_common(when, otherwise=otherwise, join=join, hold=hold)}
        )

    def interrupt(
        self,
        node_id: str,
        target: ConditionArgument = "self",
        *,
        after: EdgeArguments,
        descendants: bool = False,
        reason: str | None = None,
        when: ConditionArgument | None = None,
        otherwise: bool = False,
        join: str | None = None,
        hold: HoldArgument = False,
    ) -> NodeRef:
        """End this instance, or the one whose id `target` gives, and with `descendants` the children of it."""
        arguments = {
            "interrupt": target,
            **_common(when, otherwise=otherwise, join=join, hold=hold),
            "descendants": descendants or None,
            "reason": reason,
        }
        return self._add(node_id, "interrupt", after, arguments)

    def output(self, template: object) -> None:
        """Set the output of the flow: an expression, or a mapping or list of them."""
        self._set("output", template)

    def policy(self, policy: str) -> None:
        """Set the effect of an uncaught failure on the other nodes: ``drain`` runs them, ``fail_fast`` cancels them."""
        self._set("policy", policy)

    def event_policy(self, policy: EventPolicyOption) -> None:
        """Set the policy for events that no node awaits: ``mailbox`` keeps them, ``drop_unsubscribed`` drops them."""
        self._set("event_policy", str(policy))

    def _set(self, key: str, value: object) -> None:
        self._refuse_if_in_use()
        self._header[key] = plain_value(value, f"{self.name}: {key}")

    def _add(self, node_id: str, kind: str, after: EdgeArguments, arguments: dict[str, Any]) -> NodeRef:
        """Add a node. Its arguments have the names and the meaning of the keys of YAML."""
        self._refuse(node_id)
        edges = edges_of(after)
        if arguments[kind] is None:
            raise InvalidOption(f"{self.name}: {node_id}: {kind} must be given, not None")
        plain = plain_value(_given(arguments), f"{self.name}: {node_id}")
        fields = Fields(plain, node_id, self._problems)
        return self._add_node(node_with_edges(fields, KINDS[kind].read(fields), edges))

    def _add_node(self, node: Node) -> NodeRef:
        self._nodes[node.id] = node
        return NodeRef(node.id)

    def _refuse(self, node_id: str) -> None:
        self._refuse_if_in_use()
        if not isinstance(cast("object", node_id), str):
            raise InvalidOption(f"{self.name}: the id of an activity must be a string, not {node_id!r}")
        if node_id in self._nodes:
            raise FlowError(f"{self.name}: two activities have the id {node_id!r}")

    def _build(self) -> tuple[FlowDefinition, tuple[FlowProblem, ...]]:
        """The definition and its warnings; a `FlowError` with all problems if there is one."""
        problems = deepcopy(self._problems)
        definition = read_definition(Fields(self._header, "", problems), self.name, self._nodes.values())
        check_into(problems, definition, places={})
        if problems.has_errors:
            raise problems.error(self.name)
        self._in_use = True
        return definition, problems.all()

    def _refuse_if_in_use(self) -> None:
        if self._in_use:
            raise FlowError(f"{self.name}: the flow is in use, and its definition can no longer change")


def _given(arguments: dict[str, Any]) -> dict[str, Any]:
    """The arguments that were given: None stands for those that were not."""
    return {key: value for key, value in arguments.items() if value is not None}


def _common(when: ConditionArgument | None, *, otherwise: bool, join: str | None, hold: HoldArgument) -> dict[str, Any]:
    """The arguments that all kinds have, as YAML names them."""
    return {"when": when, "otherwise": otherwise or None, "join": join, "hold": None if hold is False else hold}


def _name_of(named: object, kind: type[Activity[..., Any] | Workflow[..., Any]], method: str) -> str:
    if isinstance(named, kind):
        return named.name
    if isinstance(named, str):
        return named
    what = kind.__name__.lower()
    raise InvalidOption(f"{method}() takes {what} functions marked with @hf.{what}, or their names, not {named!r}")


def _retry(retry: Retry | RetryFields | None) -> dict[str, Any] | None:
    """The fields of a retry policy: all of `hf.Retry`, or those of a mapping."""
    if retry is None:
        return None
    if not isinstance(cast("object", retry), Retry | Mapping):
        raise InvalidOption(f"retry takes hf.Retry(...) or a mapping such as {{'attempts': 5}}, not {retry!r}")
    fields: dict[str, Any] = (
        {name: getattr(retry, name) for name in Retry.__slots__} if isinstance(retry, Retry) else dict(retry)
    )
    if "attempts" in fields and fields["attempts"] is None:
        fields["attempts"] = UNLIMITED
    errors: object = fields.pop("non_retryable", ())
    types = cast("Sequence[object]", errors) if isinstance(errors, list | tuple) else (errors,)
    if types:
        fields["non_retryable"] = [
            qualified_name(cast("type[BaseException]", one)) if isinstance(one, type) else one for one in types
        ]
    return fields


def plain_value(value: object, what: str) -> Any:
    """A value as JSON: a reference as its expression, a timedelta as seconds."""
    match value:
        case ExpressionRef():
            return str(value)
        case NodeRef():
            return value.id
        case timedelta():
            return value.total_seconds()
        case None | bool() | int() | float() | str():
            return value
        case Mapping():
            plain: dict[str, Any] = {}
            for key, item in cast("Mapping[object, object]", value).items():
                if not isinstance(key, str):
                    raise InvalidOption(f"{what}: a key must be a string, not {key!r}")
                plain[key] = plain_value(item, what)
            return plain
        case list() | tuple():
            return [plain_value(item, what) for item in cast("Sequence[object]", value)]
        case _:
            raise InvalidOption(
                f"{what}: {value!r} is not a JSON value; a flow has numbers, expressions, lists and mappings"
            )
