"""A flow from YAML: read and checked, with all problems told at once.

One activity of a flow, as YAML says it: its kind, its options, and what it comes after.
"""

from collections.abc import Callable, Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

from holdfast.authoring.validation import LARGEST, checked_name
from holdfast.core.activity_options import LONGEST_DELAY_MS
from holdfast.core.flow.definition import (
    DEFAULT_CYCLE_LIMIT,
    After,
    AnyAction,
    ChildAction,
    CycleAction,
    Each,
    FailurePolicy,
    FlowDefinition,
    InterruptAction,
    Node,
    RaiseAction,
    RetryRules,
    RunAction,
    RunRules,
    TriggerAction,
    WaitAction,
)
from holdfast.core.flow.graph import Join
from holdfast.errors import FlowError, FlowProblem, HoldfastError, UsageError
from holdfast.flows.language import yaml_tree as documents
from holdfast.flows.language.checker import KnownNames, check_into
from holdfast.flows.language.problems import Problems, quoted
from holdfast.flows.language.yaml_fields import Places, YamlFields, shown, was_told, whole_number_of
from holdfast.flows.language.yaml_tree import LARGEST_BYTES, Tree, YamlMapping, YamlScalar, YamlSequence, read_document
from holdfast.flows.libraries import require_libraries

UNLIMITED: Final = "unlimited"
MOST_AT_A_TIME: Final = 10_000
NOTHING: Final = RunAction(activity="")
"""Stands for what an activity does if that cannot be read; such a flow is never used."""

_COMMON: Final = frozenset({"after", "when", "otherwise", "join"})


class NodeKind(NamedTuple):
    """How a kind is read, and the keys that it has beside those of every kind."""

    read: Callable[[YamlFields], AnyAction]
    keys: frozenset[str]


class ParsedNode(NamedTuple):
    """A node, and whether what it does could be read."""

    node: Node
    is_whole: bool


def read_node(form: YamlFields) -> ParsedNode:
    """The node of a form. What is wrong is noted; what can be read is there."""
    present = tuple(kind for kind in KINDS if kind in form.tree.entries)
    keys = _keys_of(present)
    action: AnyAction = KINDS[present[0]].read(form) if present else NOTHING
    if len(present) > 1:
        form.add_problem(present[1], f"it is {' and '.join(present)} at once; divide it into several activities")
    elif (
        not present
        and not form.tree.is_partial
        and not any(form.problems.closest(key, KINDS) for key in form if key not in keys)
    ):
        form.add_problem("", f"it does nothing; it needs one of {', '.join(KINDS)}")
    if "trigger" not in present or len(present) > 1:
        node = _with_edges(form, action)
    else:
        node = Node(form.node, action, line=form.places[form.node, ""])
        if "after" in form:
            form.add_problem("after", "it is the trigger, and nothing comes before that")
            form.take("after")
    _tell_strange_keys(form, present, keys)
    return ParsedNode(node, is_whole=len(present) == 1)


@cache
def _keys_of(present: tuple[str, ...]) -> frozenset[str]:
    """The keys that an activity of these kinds can have; one of no kind could be of any."""
    keys = frozenset(present or KINDS).union(*(KINDS[kind].keys for kind in present or KINDS))
    return keys if present == ("trigger",) else keys | _COMMON


def _tell_strange_keys(form: YamlFields, present: tuple[str, ...], keys: frozenset[str]) -> None:
    """Keys of another kind are told as such, others with what they resemble."""
    strange = form.tree.entries.keys() - keys
    for key in sorted(strange):
        owners = [kind for kind, (_, its_keys) in KINDS.items() if key in its_keys]
        if owners and present:
            form.take(key)
            form.add_problem(key, f"{key} goes with {' or '.join(owners)}, not with {present[0]}")
    if strange:
        form.finish(*keys)


# ---------------------------------------------------------------- what it does


def _trigger(form: YamlFields) -> AnyAction:
    value = form.take("trigger")
    if not isinstance(value, YamlScalar) or value.value is not True:
        form.add_problem("trigger", f"trigger must be true, not {'nothing' if value is None else shown(value)}")
    return TriggerAction()


def _run(form: YamlFields) -> AnyAction:
    return RunAction(form.name("run", "an activity"), form.template("input"), _each(form), _rules(form))


def _child(form: YamlFields) -> AnyAction:
    return ChildAction(
        form.name("flow", "a flow or workflow"),
        form.template("input"),
        _each(form),
        form.expression("id"),
        form.boolean("detached"),
    )


def _each(form: YamlFields) -> Each | None:
    items = form.expression("each")
    limit = form.integer("limit", least=1, most=MOST_AT_A_TIME)
    if "each" not in form:
        if "limit" in form:
            form.add_problem("limit", "limit goes with each: it is how many run at a time")
        return None
    return Each(items, limit)


def _rules(form: YamlFields) -> RunRules:
    return RunRules(
        queue=form.name("queue", "a queue") or None,
        retry=_retry(form),
        schedule_to_start_ms=form.duration("schedule_to_start", least_ms=1),
        start_to_close_ms=form.duration("start_to_close", least_ms=1),
        schedule_to_close_ms=form.duration("schedule_to_close", least_ms=1),
        heartbeat_ms=form.duration("heartbeat", least_ms=1),
    )


def _retry(form: YamlFields) -> RetryRules | None:
    inner = form.inner("retry", "{attempts: 5, initial: 1s}")
    if inner is None:
        return None
    rules = RetryRules(
        attempts=_attempts(inner),
        initial_ms=_delay(inner, "initial"),
        backoff=inner.number("backoff", least=1),
        maximum_ms=_delay(inner, "maximum"),
        jitter=inner.boolean("jitter") if "jitter" in inner else None,
        non_retryable=inner.strings("non_retryable", "the name of an error"),
    )
    if rules.initial_ms is not None and rules.maximum_ms is not None and rules.initial_ms > rules.maximum_ms:
        inner.add_problem("maximum", "maximum must be at least as long as initial")
    inner.finish("jitter")
    return rules


def _attempts(form: YamlFields) -> int | None:
    value = form.take("attempts")
    if isinstance(value, YamlScalar) and value.value == UNLIMITED:
        return 0
    attempts = whole_number_of(value)
    if attempts is not None and 1 <= attempts <= LARGEST:
        return attempts
    if value is not None:
        form.add_problem("attempts", f"attempts must be 1 or more, or {UNLIMITED}, not {shown(value)}")
    return None


def _delay(form: YamlFields, key: str) -> int | None:
    length = form.duration(key)
    if length is not None and length > LONGEST_DELAY_MS:
        form.add_problem(key, f"{key} must be at most a year")
        return None
    return length


def _wait(form: YamlFields) -> AnyAction:
    inner = form.inner("wait", "{event: approved, timeout: 2d} or {timer: 1h}")
    if inner is None:
        return WaitAction()
    event = inner.name("event", "an event")
    timeout = inner.span_or_expression("timeout")
    timer = inner.span_or_expression("timer")
    if "timer" in inner and ("event" in inner or "timeout" in inner):
        inner.add_problem("timer", "timer is for a wait without an event; an event has a timeout")
    elif "event" not in inner and "timer" not in inner:
        inner.add_problem("", "it needs an event or a timer")
    inner.finish()
    if "timer" in inner:
        return WaitAction(timeout=timer)
    return WaitAction(event, timeout)


def _also_at(form: YamlFields, written: str, read: str) -> None:
    """An expression that is kept under another name than it was written has its line under both."""
    if (line := form.places.get((form.node, written))) is not None:
        form.places[form.node, read] = line


def _cycle(form: YamlFields) -> AnyAction:
    limit = form.integer("limit", least=1, most=LARGEST)
    delay = form.span_or_expression("delay")
    return CycleAction(
        form.text("cycle", "the id of an activity"), delay or 0, DEFAULT_CYCLE_LIMIT if limit is None else limit
    )


def _raise(form: YamlFields) -> AnyAction:
    inner = form.inner("raise", "{event: shipped, to: received.input.buyer}")
    if inner is None:
        return RaiseAction("", "")
    action = RaiseAction(inner.name("event", "an event"), inner.expression("to"), inner.template("value"))
    for key in ("event", "to"):
        if key not in inner:
            inner.add_problem(key, f"it needs {key}")
    inner.finish()
    return action


def _interrupt(form: YamlFields) -> AnyAction:
    target = form.expression("interrupt")
    descendants = form.boolean("descendants")
    return InterruptAction("" if target == "self" else target, descendants, form.text("reason"))


_EACH: Final = frozenset({"each", "limit", "input"})
_OPTIONS: Final = frozenset({"queue", "retry", "schedule_to_start", "start_to_close", "schedule_to_close", "heartbeat"})
KINDS: Final[Mapping[str, NodeKind]] = {
    "trigger": NodeKind(_trigger, frozenset()),
    "run": NodeKind(_run, _EACH | _OPTIONS),
    "flow": NodeKind(_child, _EACH | {"id", "detached"}),
    "wait": NodeKind(_wait, frozenset()),
    "cycle": NodeKind(_cycle, frozenset({"limit", "delay"})),
    "raise": NodeKind(_raise, frozenset()),
    "interrupt": NodeKind(_interrupt, frozenset({"descendants", "reason"})),
}

# ---------------------------------------------------------------- what it comes after


def _with_edges(form: YamlFields, action: AnyAction) -> Node:
    """The node with its edges. What it says about its only edge belongs to that edge."""
    edges = _edges(form)
    when = form.expression("when")
    otherwise = form.boolean("otherwise")
    if len(edges) == 1:
        (edge,) = edges
        if when and not edge.when:
            _also_at(form, "when", f"after.{edge.source}.when")
            edge, when = After(edge.source, edge.catch, when, edge.otherwise), ""
        edges = [After(edge.source, edge.catch, edge.when, edge.otherwise or otherwise)]
    elif otherwise:
        form.add_problem("otherwise", "otherwise is about one edge, and there are several; write it in after")
    for edge in edges:
        if edge.otherwise and (edge.when or edge.catch is not None):
            key = "otherwise" if "otherwise" in form else "after"
            form.add_problem(
                key, "otherwise is what happens when no condition holds; it has neither when nor catch itself"
            )
    join = form.word("join", tuple(Join))
    return Node(form.node, action, ordered(edges), Join(join) if join else Join.ALL, when, form.places[form.node, ""])


def ordered(edges: Iterable[After]) -> tuple[After, ...]:
    """Edges in the order in which a definition has them: in which order they were written means nothing."""
    return tuple(sorted(edges, key=lambda edge: (edge.source, edge.catch is not None)))


def _edges(form: YamlFields) -> list[After]:
    value = form.take("after")
    if value is None:
        return []
    if isinstance(value, documents.YamlMapping):
        inner = YamlFields(value, form.node, form.problems, form.places, "after")
        return [edge for source in value.entries for edge in _edges_from(inner, source)]
    sources = form.strings("after", "the id of an activity") or ()
    for source in {source for source in sources if sources.count(source) > 1}:
        form.add_problem("after", f"{quoted(source)} is there twice")
    return [After(source) for source in dict.fromkeys(sources)]


def _edges_from(form: YamlFields, source: str) -> list[After]:
    """The edges from one activity: one, or with a list several, such as one for errors and one for the rest."""
    value = form.take(source)
    edges = [_edge(form, source, one) for one in (value.items if isinstance(value, YamlSequence) else [value])]
    for catches in (False, True):
        if sum((edge.catch is not None) is catches for edge in edges) > 1:
            form.add_problem(source, f"{quoted(source)} is there twice; join the conditions, or the errors to catch")
            return edges[:1]
    return edges


def _edge(form: YamlFields, source: str, value: Tree | None) -> After:
    if value is None or (isinstance(value, YamlScalar) and value.value is None):
        return After(source)
    if not isinstance(value, documents.YamlMapping):
        form.add_problem(source, f"it must be a map such as {{catch: [ValueError]}}, not {shown(value)}")
        return After(source)
    inner = YamlFields(value, form.node, form.problems, form.places, form.where(source))
    edge = After(
        source, inner.strings("catch", "the name of an error"), inner.expression("when"), inner.boolean("otherwise")
    )
    inner.finish()
    return edge


INPUT_TYPES: Final = ("string", "integer", "number", "boolean", "array", "object", "any")
_OTHER_WORDS: Final = {
    "text": "string", "str": "string", "int": "integer", "float": "number", "double": "number", "bool": "boolean",
    "list": "array", "dict": "object", "map": "object",
}  # fmt: skip


class LoadedFlow(NamedTuple):
    """A flow that is fine. `warnings` are about what may not be; `places` has the lines."""

    definition: FlowDefinition
    warnings: tuple[FlowProblem, ...]
    places: Places


def load_file(path: Path, known: KnownNames | None = None) -> LoadedFlow:
    """The flow in a file. A file that cannot be read is a `FlowError`, too."""
    try:
        with path.open("rb") as file:
            data = file.read(LARGEST_BYTES + 1)
    except OSError as error:
        raise FlowError(f"{path}: it cannot be read: {error.strerror or error}") from None
    return load_text(data, str(path), known)


def load_text(text: str | bytes, source: str, known: KnownNames | None = None) -> LoadedFlow:
    """The flow in `text`; bytes are UTF-8. `source` is what problems call it."""
    require_libraries()
    problems = Problems()
    return _checked(read_document(_decoded(text, source), problems), problems, source, known)


def _decoded(text: object, source: str) -> str:
    if isinstance(text, str):
        return text
    if not isinstance(text, bytes):
        raise UsageError(f"a flow is read from a text of YAML, not from {type(text).__name__}")
    try:
        return text.decode()
    except UnicodeDecodeError as error:
        line = text.count(b"\n", 0, error.start) + 1
        said = "it is not valid UTF-8"
        raise FlowError(f"{source}:{line}: {said}", (FlowProblem(line, said),)) from None


def load_tree(tree: Tree, source: str, known: KnownNames | None = None) -> LoadedFlow:
    """The flow in a tree that was built without YAML."""
    return _checked(tree, Problems(), source, known)


def _checked(tree: Tree | None, problems: Problems, source: str, known: KnownNames | None) -> LoadedFlow:
    places: Places = {}
    read = None if tree is None else _read_flow(tree, problems, places)
    if read is not None:
        check_into(problems, read.definition, places=places, known=known, unreadable=read.unreadable)
    if read is None or problems.has_errors:
        raise problems.error(source)
    return LoadedFlow(read.definition, problems.all(), places)


class _ReadFlow(NamedTuple):
    definition: FlowDefinition
    unreadable: frozenset[str]
    """Activities whose kind is not known; nothing more is said about what they do."""


def _read_flow(tree: Tree, problems: Problems, places: Places) -> _ReadFlow | None:
    if not isinstance(tree, YamlMapping):
        problems.add(tree.line, f"a flow is a map that begins with flow: NAME, not {shown(tree)}")
        return None
    form = YamlFields(tree, "", problems, places)
    places["", ""] = tree.lines.get("flow", tree.line)
    places["", "activities"] = tree.lines.get("activities", tree.line)
    if "flow" not in form:
        problems.add(tree.line, "it has no name; write flow: NAME")
    name = _flow_name(form)
    policy = form.word("policy", tuple(FailurePolicy))
    nodes, unreadable = _nodes(form, problems, places)
    definition = FlowDefinition(
        name=name,
        nodes=tuple(sorted(nodes, key=lambda node: node.id)),
        version=form.text("version"),
        input=_input(form),
        policy=FailurePolicy(policy) if policy else FailurePolicy.DRAIN,
        output=form.template("output"),
    )
    form.finish()
    return _ReadFlow(definition, unreadable)


def _flow_name(form: YamlFields) -> str:
    text = form.text("flow", "the name of the flow")
    try:
        return checked_name(text, "a flow") if text else ""
    except HoldfastError as error:
        form.add_problem("flow", str(error))
        return ""


def _input(form: YamlFields) -> dict[str, str]:
    inner = form.inner("input", "{order_id: string, cents: integer}")
    found: dict[str, str] = {}
    for field in inner or ():
        value = inner.take(field) if inner else None
        word = value.value if isinstance(value, YamlScalar) else None
        if inner and word not in INPUT_TYPES:
            suggestion = _OTHER_WORDS.get(word, "") if isinstance(word, str) else ""
            given = shown(value) if value is not None else "nothing"
            inner.add_problem(
                field, f"{quoted(field)} must be one of {', '.join(INPUT_TYPES)}, not {given}", suggestion=suggestion
            )
        elif isinstance(word, str):
            found[field] = word
    return found


def _nodes(form: YamlFields, problems: Problems, places: Places) -> tuple[list[Node], frozenset[str]]:
    tree = form.take("activities")
    if not isinstance(tree, YamlMapping) or not tree.entries:
        given = shown(tree) if tree is not None and not isinstance(tree, YamlMapping) else "nothing"
        form.add_problem("activities", f"activities must be a map with a trigger and what comes after it, not {given}")
        return [], frozenset()
    nodes: list[Node] = []
    unreadable: set[str] = set()
    for node_id, value in tree.entries.items():
        places[node_id, ""] = tree.lines[node_id]
        if isinstance(value, YamlMapping):
            read = read_node(YamlFields(value, node_id, problems, places))
            nodes.append(read.node)
            if not read.is_whole:
                unreadable.add(node_id)
        else:
            if not was_told(value):
                said = f"it must be a map such as {{run: shop.pack}}, not {shown(value)}"
                problems.add(value.line, said, node=node_id)
            unreadable.add(node_id)
    return nodes, frozenset(unreadable)
