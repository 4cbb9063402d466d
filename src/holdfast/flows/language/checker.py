"""The checker: finds every problem of a definition that can be known before the flow runs.

Flows from YAML and from the builder are held to the same rules. Names of activities, and the arguments that a flow
gives them, are compared with the parameters of the functions where these are known (`KnownNames`). Only certain
mismatches are reported: the names and the number of arguments where the input is a mapping or a list.
"""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from inspect import Parameter, Signature, signature
from types import ModuleType
from typing import Any, Final, NamedTuple, cast

from holdfast.authoring.activity import Activity, AnyActivity
from holdfast.authoring.workflow import Workflow
from holdfast.core.flow.ancestry import Ancestry, cycles
from holdfast.core.flow.definition import (
    MOST_NODES,
    ChildAction,
    CycleAction,
    FlowDefinition,
    InterruptAction,
    Node,
    RunAction,
    Template,
    TriggerAction,
)
from holdfast.core.flow.graph import Join
from holdfast.flows.expressions.scanner import KEYWORDS, RESERVED, TYPES
from holdfast.flows.language.expression_checker import BESIDE_NODES, check_expressions
from holdfast.flows.language.problems import Places, Problems, quoted


class ArgumentMismatch(NamedTuple):
    """A reason why a call always fails. `where` is its place in the node, `unknown` a name that may be misspelt."""

    where: str
    message: str
    unknown: str = ""
    names: Collection[str] = ()


def argument_mismatches(activity: str, signature: Signature, given: Template) -> Iterator[ArgumentMismatch]:
    """The certain mismatches between an input and the parameters of an activity."""
    parameters = signature.parameters
    if any(one.kind in {Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD} for one in parameters.values()):
        return
    if isinstance(given, dict):
        filled = set(cast("dict[str, Template]", given))
        unfilled = parameters.keys() - filled
        for name in sorted(filled - parameters.keys()):
            yield ArgumentMismatch(
                f"input.{name}", f"{quoted(activity)} has no parameter {quoted(name)}", name, unfilled
            )
    elif isinstance(given, list):
        count = len(cast("list[Template]", given))
        positional = [one.name for one in parameters.values() if one.kind is not Parameter.KEYWORD_ONLY]
        filled = set(positional[:count])
        if count > len(positional):
            arguments = "argument" if len(positional) == 1 else "arguments"
            message = f"{quoted(activity)} takes {len(positional)} {arguments} by position, not {count}"
            yield ArgumentMismatch("input", message)
    else:
        return
    required = [name for name, one in parameters.items() if one.default is Parameter.empty]
    if missing := [name for name in required if name not in filled]:
        yield ArgumentMismatch("input", f"{quoted(activity)} needs {', '.join(missing)}, which the input does not have")


LONGEST_ID: Final = 100
SHOWN_CYCLE: Final = 12
"""The number of activities of a cycle that a message names."""
RESERVED_IDS: Final = KEYWORDS | RESERVED | TYPES | BESIDE_NODES
_ID: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True, slots=True)
class KnownNames:
    """The names of activities, flows and workflows that a flow may run. None: they are not known.

    An unknown flow or workflow is only a warning, because another worker may have it. If the activities are not known,
    `has_module` can check whether a module exists.
    """

    activities: Collection[str] | None = None
    workflows: Collection[str] | None = None
    has_module: Callable[[str], bool] | None = None
    signatures: Mapping[str, Signature] = field(default_factory=dict[str, Signature])
    """The parameters of the activities, as far as they are known."""
    without_stream: Collection[str] = frozenset()
    """The names of activities that are known to yield no values."""


def check_into(
    problems: Problems,
    definition: FlowDefinition,
    *,
    places: Places,
    known: KnownNames | None = None,
    unreadable: frozenset[str] = frozenset(),
) -> None:
    """Add all problems of a flow. Nodes of `unreadable` exist, but their actions are not checked."""
    checker = _Checker(problems, definition, places, unreadable)
    checker.check_size_and_ids()
    checker.check_triggers()
    checker.check_edges()
    checker.check_default_branches()
    ancestry = Ancestry.of(checker.nodes)
    checker.check_acyclic(ancestry)
    checker.check_cycle_nodes(ancestry)
    checker.check_streams()
    checker.check_holds()
    check_expressions(
        problems, definition, nodes=checker.nodes, ancestry=ancestry, places=places, unreadable=unreadable
    )
    if known is not None:
        checker.check_known(known)


class _Checker:
    """The checks of nodes and edges."""

    def __init__(
        self, problems: Problems, definition: FlowDefinition, places: Places, unreadable: frozenset[str]
    ) -> None:
        self.problems = problems
        self.definition = definition
        self.places = places
        self.unreadable = unreadable
        self.nodes = {node.id: node for node in definition.nodes}
        self.ids = {*self.nodes, *unreadable}

    def add(self, node: str, where: str, message: str, *, suggestion: str = "") -> None:
        line = self.places.get((node, where)) or self.places.get((node, ""), 0)
        self.problems.add(line, message, node=node, suggestion=suggestion)

    def check_size_and_ids(self) -> None:
        if len(self.ids) > MOST_NODES:
            self.add("", "activities", f"a flow has at most {MOST_NODES:,} activities, not {len(self.ids):,}")
        for node in self.ids:
            if not _ID.fullmatch(node) or len(node) > LONGEST_ID:
                self.add(
                    node,
                    "",
                    f"the id of an activity has letters, digits and _, does not begin with a digit, and is at most "
                    f"{LONGEST_ID} long, because expressions name it",
                )
            elif node in RESERVED_IDS:
                self.add(node, "", f"{node} has another meaning in expressions; choose another id")
        if len(self.nodes) != len(self.definition.nodes):
            self.add("", "activities", "two activities have the same id")

    def check_triggers(self) -> None:
        triggers = [node.id for node in self.definition.nodes if isinstance(node.action, TriggerAction)]
        triggers.sort(key=lambda node: self.places.get((node, ""), 0))
        if not (triggers or self.unreadable or self.problems.is_spoiled("", "activities")):
            self.add("", "activities", "it has no trigger; add an activity with trigger: true, where the flow begins")
        for second in triggers[1:]:
            self.add(second, "", f"a flow has one trigger, and {triggers[0]} is one already")
        for trigger in triggers:
            if self.nodes[trigger].after:
                self.add(trigger, "after", "it is the trigger, which comes after nothing; remove after")

    def check_edges(self) -> None:
        for node in self.definition.nodes:
            for edge in node.after:
                if edge.source not in self.ids:
                    self.add(
                        node.id,
                        "after",
                        f"there is no activity {quoted(edge.source)} for it to come after",
                        suggestion=self.problems.closest(edge.source, self.ids),
                    )
                if edge.catch == ():
                    self.add(node.id, f"after.{edge.source}", "catch needs the name of an error; Exception catches all")
            if not (node.after or isinstance(node.action, TriggerAction) or self.problems.is_spoiled(node.id, "after")):
                self.add(node.id, "", "it is unreachable; write after: ID, the activity that it comes after")
            if node.join is Join.ANY and len(node.after) < 2:  # noqa: PLR2004  # edges of a join
                self.problems.warn(
                    self.places.get((node.id, ""), 0), "join: any has no effect with one edge", node=node.id
                )

    def check_default_branches(self) -> None:
        conditions = {edge.source for node in self.definition.nodes for edge in node.after if edge.when}
        for node in self.definition.nodes:
            for edge in node.after:
                if edge.otherwise and (edge.when or edge.catch is not None):
                    self.add(node.id, "otherwise", "a default branch has neither a condition nor errors to catch")
                elif edge.otherwise and edge.source not in conditions:
                    self.add(
                        node.id,
                        "otherwise",
                        f"otherwise is taken if no condition after {edge.source} holds, and no edge from it has one",
                    )

    def check_acyclic(self, ancestry: Ancestry) -> None:
        for cycle in cycles(self.nodes, ancestry.tangled):
            for node in cycle:
                start = cycle.index(node)
                names = [*cycle[start:], *cycle[:start], node]
                path = " -> ".join(names if len(names) <= SHOWN_CYCLE else [*names[:SHOWN_CYCLE], "..."])
                self.add(
                    node,
                    "after",
                    f"it is in a cycle: {path}; to run activities again, add an activity with cycle",
                )

    def check_cycle_nodes(self, ancestry: Ancestry) -> None:
        for node in self.definition.nodes:
            action = node.action
            if not isinstance(action, CycleAction) or node.id in self.unreadable:
                continue
            target = self.nodes.get(action.target)
            if target is None:
                if action.target not in self.ids and not self.problems.is_spoiled(node.id, "cycle"):
                    self.add(
                        node.id,
                        "cycle",
                        f"there is no activity {quoted(action.target)} to go back to",
                        suggestion=self.problems.closest(action.target, self.ids),
                    )
            elif isinstance(target.action, TriggerAction):
                self.add(node.id, "cycle", f"it cannot go back to the trigger {target.id}; name what comes after it")
            elif not ancestry.tangled & {node.id, target.id} and not ancestry.is_before(target.id, node.id):
                self.add(node.id, "cycle", f"it cannot go back to {target.id}, which does not come before it")

    def check_streams(self) -> None:
        """K10: the responses of a node that runs one activity are the items of a node that comes after it."""
        for node in self.definition.nodes:
            if node.stream and node.id not in self.unreadable and (reason := self._stream_problem(node)):
                suggestion = "" if node.stream in self.ids else self.problems.closest(node.stream, self.ids)
                self.add(node.id, "each", f"each: {reason}", suggestion=suggestion)

    def _stream_problem(self, node: Node) -> str:
        """The reason why a node cannot run for the responses of another, or an empty string."""
        source = self.nodes.get(node.stream)
        if source is None:
            return "" if node.stream in self.ids else f"there is no activity {quoted(node.stream)}"
        if not isinstance(source.action, RunAction):
            return "" if source.id in self.unreadable else f"{source.id} runs no activity, so it has no responses"
        if source.action.each is not None:
            return f"{source.id} runs once for each item and has no responses; its output has the values of each item"
        if source.hold is not None:
            return f"{source.id} has a hold, so its responses cannot be read before its release; use {source.id}.output"
        edges = [edge for edge in node.after if edge.source == source.id and edge.catch is None]
        if not edges:
            return f"it must come after {source.id}, whose responses are its items"
        if any(edge.when or edge.otherwise for edge in edges):
            return f"the edge from {source.id} has a condition, which is decided after the responses have arrived"
        if node.join is Join.ANY and len(node.after) > 1:
            return f"join: any could start it without {source.id}; use join: all"
        return ""

    def check_holds(self) -> None:
        for node in self.definition.nodes:
            if node.hold is None or node.id in self.unreadable:
                continue
            if isinstance(node.action, TriggerAction):
                message = "it is the trigger, which does nothing that could be held; hold a node after it"
                self.add(node.id, "hold", message)
            elif isinstance(node.action, InterruptAction) and not node.action.target:
                line = self.places.get((node.id, ""), 0)
                message = "hold has no effect here: the instance ends when this node runs"
                self.problems.warn(line, message, node=node.id)

    def check_known(self, known: KnownNames) -> None:
        for node in self.definition.nodes:
            if node.id not in self.unreadable:
                self._check_known(node, known)
        if known.activities is None and known.has_module is not None:
            self._check_modules(known.has_module)

    def _check_modules(self, has_module: Callable[[str], bool]) -> None:
        """Warn of modules that do not exist, once for each, where it is named first."""
        named: dict[str, list[tuple[int, str, str]]] = {}
        for node in self.definition.nodes:
            if isinstance(node.action, RunAction) and "." in node.action.activity:
                line = self.places.get((node.id, ""), 0)
                module = node.action.activity.partition(".")[0]
                named.setdefault(module, []).append((line, node.id, node.action.activity))
        for module, uses in named.items():
            if not has_module(module):
                line, node_id, activity = min(uses)
                more = f" (nor for {len(uses) - 1} more)" if len(uses) > 1 else ""
                self.problems.warn(
                    line, f"no module {quoted(module)} can be found here for {quoted(activity)}{more}", node=node_id
                )

    def _check_known(self, node: Node, known: KnownNames) -> None:
        match node.action:
            case RunAction(activity=name) as run if name:
                if known.activities is not None and name not in known.activities:
                    suggestion = self.problems.closest(name, known.activities)
                    self.add(node.id, "run", f"there is no activity {quoted(name)}", suggestion=suggestion)
                elif name in known.signatures and not self.problems.is_spoiled(node.id, "input"):
                    self._check_arguments(node.id, run, known.signatures[name])
            case ChildAction(workflow=name) if name and known.workflows is not None:
                if name not in known.workflows and name != self.definition.name:
                    self.problems.warn(
                        self.places.get((node.id, "flow")) or self.places.get((node.id, ""), 0),
                        f"there is no flow or workflow {quoted(name)} here; the child waits for a worker that has it",
                        node=node.id,
                        suggestion=self.problems.closest(name, known.workflows),
                    )
            case _:
                pass
        source = self.nodes.get(node.stream)
        if source is not None and isinstance(source.action, RunAction):
            name = source.action.activity
            if name in known.without_stream:
                message = f"each: {source.id} has no responses, because {quoted(name)} yields no values"
                self.add(node.id, "each", message)

    def _check_arguments(self, node: str, run: RunAction, signature: Signature) -> None:
        for mismatch in argument_mismatches(run.activity, signature, run.input):
            suggestion = self.problems.closest(mismatch.unknown, mismatch.names) if mismatch.unknown else ""
            self.add(node, mismatch.where, mismatch.message, suggestion=suggestion)


def names_in_modules(modules: Iterable[ModuleType], activities: Iterable[AnyActivity] = ()) -> KnownNames:
    """The names of the activities in modules, and of single ones. Flows and workflows are not known."""
    found = [cast("Activity[..., Any]", one) for one in activities]
    found += [cast("Activity[..., Any]", value) for value in _values(modules) if isinstance(value, Activity)]
    names = frozenset(name for one in found for name in _names_of(one))
    meanings = _meanings(found)
    return KnownNames(
        activities=names,
        signatures={name: signature(one.fn) for name, one in meanings.items()},
        without_stream=frozenset(name for name, one in meanings.items() if not one.yields),
    )


def workflows_in(modules: Iterable[ModuleType]) -> frozenset[str]:
    """The names of the flows and workflows in modules."""
    workflows = (cast("Workflow[..., Any]", value) for value in _values(modules) if isinstance(value, Workflow))
    return frozenset(one.name for one in workflows)


def _values(modules: Iterable[ModuleType]) -> list[Any]:
    return [value for module in modules for value in vars(module).values()]


def _names_of(activity: Activity[..., Any]) -> Iterable[str]:
    """The names by which flows may call an activity: its own, and its function with any suffix of the module."""
    yield activity.name
    parts = f"{activity.__module__}.{activity.__name__}".split(".")
    for place in range(len(parts)):
        yield ".".join(parts[place:])


def _meanings(activities: Iterable[Activity[..., Any]]) -> Mapping[str, Activity[..., Any]]:
    """The activity of each name that means one. The name of an activity precedes that of a function."""
    by_name: dict[str, dict[int, Activity[..., Any]]] = {}
    for one in activities:
        for name in _names_of(one):
            by_name.setdefault(name, {})[id(one)] = one
    found: dict[str, Activity[..., Any]] = {}
    for name, candidates in by_name.items():
        own = [one for one in candidates.values() if one.name == name] or list(candidates.values())
        if len(own) == 1:
            found[name] = own[0]
    return found
