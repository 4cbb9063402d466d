"""Reads a flow from YAML into a checked definition. Every problem of a file is found in one pass, with its line."""

from functools import cache
from pathlib import Path
from typing import Any, Final, NamedTuple

from holdfast.authoring.validation import checked_name
from holdfast.core.flow.definition import After, AnyAction, FlowDefinition, Node, RunAction
from holdfast.errors import FlowError, FlowProblem, HoldfastError, UsageError
from holdfast.flows.language.checker import KnownNames, check_into
from holdfast.flows.language.fields import Fields, list_of, shown
from holdfast.flows.language.node_kinds import COMMON_KEYS, KINDS, node_with_edges, read_definition
from holdfast.flows.language.problems import Places, Problems
from holdfast.flows.language.yaml_tree import LARGEST_BYTES, YamlMapping, YamlValue, read_document
from holdfast.flows.libraries import require_libraries

NOTHING: Final = RunAction(activity="")
"""The action of a node whose kind cannot be read; such a flow is never used."""


class LoadedFlow(NamedTuple):
    """A flow without errors, its warnings, and the lines of its nodes and expressions."""

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
    """The flow in `text`; bytes are UTF-8. `source` is its name in messages."""
    require_libraries()
    problems = Problems()
    places: Places = {}
    document = read_document(_decoded(text, source), problems)
    read = None if document is None else _read_flow(document, problems, places)
    if read is not None:
        check_into(problems, read.definition, places=places, known=known, unreadable=read.unreadable)
    if read is None or problems.has_errors:
        raise problems.error(source)
    return LoadedFlow(read.definition, problems.all(), places)


def _decoded(text: object, source: str) -> str:
    if isinstance(text, str):
        return text
    if not isinstance(text, bytes):
        raise UsageError(f"a flow is read from a string or bytes of YAML, not from {type(text).__name__}")
    try:
        return text.decode()
    except UnicodeDecodeError as error:
        line = text.count(b"\n", 0, error.start) + 1
        message = "it is not valid UTF-8"
        raise FlowError(f"{source}:{line}: {message}", (FlowProblem(line, message),)) from None


# ---------------------------------------------------------------- the flow


class _ReadFlow(NamedTuple):
    definition: FlowDefinition
    unreadable: frozenset[str]
    """Nodes whose kind is not known; their actions are not checked."""


def _read_flow(document: YamlValue, problems: Problems, places: Places) -> _ReadFlow | None:
    mapping = document.value
    if not isinstance(mapping, YamlMapping):
        problems.add(document.line, f"a flow is a mapping that begins with flow: NAME, not {shown(mapping)}")
        return None
    fields = Fields(mapping, "", problems, places)
    places["", ""] = mapping.key_lines.get("flow", mapping.line)
    places["", "activities"] = mapping.key_lines.get("activities", mapping.line)
    if "flow" not in fields:
        problems.add(mapping.line, "it has no name; write flow: NAME")
    name = _flow_name(fields)
    nodes, unreadable = _nodes(fields)
    definition = read_definition(fields, name, nodes)
    fields.finish("activities")
    return _ReadFlow(definition, unreadable)


def _flow_name(fields: Fields) -> str:
    text = fields.text("flow", "the name of the flow")
    try:
        return checked_name(text, "a flow") if text else ""
    except HoldfastError as error:
        fields.add_problem("flow", str(error))
        return ""


def _nodes(fields: Fields) -> tuple[list[Node], frozenset[str]]:
    activities = fields.values.get("activities")
    if not isinstance(activities, YamlMapping) or not activities:
        given = "nothing" if isinstance(activities, YamlMapping) else fields.shown("activities")
        message = f"activities must be a mapping with a trigger and the activities after it, not {given}"
        fields.add_problem("activities", message)
        return [], frozenset()
    nodes: list[Node] = []
    unreadable: set[str] = set()
    for node_id, value in activities.items():
        fields.places[node_id, ""] = activities.key_lines[node_id]
        if isinstance(value, YamlMapping):
            node, is_whole = _read_node(Fields(value, node_id, fields.problems, fields.places))
            nodes.append(node)
            if not is_whole:
                unreadable.add(node_id)
        else:
            if node_id not in activities.refused:
                message = f"it must be a mapping such as {{run: shop.pack}}, not {shown(value)}"
                fields.problems.add(activities.value_lines[node_id], message, node=node_id)
            unreadable.add(node_id)
    return nodes, frozenset(unreadable)


# ---------------------------------------------------------------- one node


def _read_node(fields: Fields) -> tuple[Node, bool]:
    """A node, and whether it has exactly one kind."""
    present = tuple(kind for kind in KINDS if kind in fields)
    keys = _keys_of(present)
    action: AnyAction = KINDS[present[0]].read(fields) if present else NOTHING
    if len(present) > 1:
        fields.add_problem(present[1], f"it is {' and '.join(present)} at once; split it into several activities")
    elif (
        not present
        and not fields.yaml.is_partial
        and not any(fields.problems.closest(key, KINDS) for key in fields if key not in keys)
    ):
        fields.add_problem("", f"it does nothing; it needs one of {', '.join(KINDS)}")
    line = fields.places[fields.node, ""]
    if present == ("trigger",):
        node = Node(fields.node, action, line=line)
        if "after" in fields:
            fields.add_problem("after", "it is the trigger, which comes after nothing; remove after")
            fields.take("after")
        if "hold" in fields:
            fields.add_problem("hold", "it is the trigger, which does nothing that could be held; hold a node after it")
            fields.take("hold")
    else:
        node = node_with_edges(fields, action, _edges(fields), line)
        if len(node.after) == 1 and (when_line := fields.places.get((fields.node, "when"))) and not node.when:
            fields.places.setdefault((fields.node, f"after.{node.after[0].source}.when"), when_line)
    _add_unknown_keys(fields, present, keys)
    return node, len(present) == 1


@cache
def _keys_of(present: tuple[str, ...]) -> frozenset[str]:
    """The keys that a node of these kinds can have; one without a kind could be of any."""
    keys = frozenset(present or KINDS).union(*(KINDS[kind].keys for kind in present or KINDS))
    return keys | {"hold"} if present == ("trigger",) else keys | COMMON_KEYS


def _add_unknown_keys(fields: Fields, present: tuple[str, ...], keys: frozenset[str]) -> None:
    """Add a problem for each unknown key. A key of another kind is named with its kind."""
    unknown = fields.values.keys() - keys
    for key in sorted(unknown):
        owners = [kind for kind, (_, its_keys) in KINDS.items() if key in its_keys]
        if owners and present:
            fields.take(key)
            fields.add_problem(key, f"{key} goes with {' or '.join(owners)}, not with {present[0]}")
    if unknown:
        fields.finish(*keys)


def _edges(fields: Fields) -> list[After]:
    after = fields.take("after")
    if isinstance(after, YamlMapping):
        inner = fields.inside("after", after)
        return [edge for source in inner for edge in _edges_from(inner, source)]
    return [After(source) for source in fields.strings("after", "the id of an activity") or ()]


def _edges_from(fields: Fields, source: str) -> list[After]:
    """The edges from one node; with a list several, such as one for errors and one for the rest."""
    return [_edge(fields, source, item) for item in list_of(fields.take(source))]


def _edge(fields: Fields, source: str, value: Any) -> After:
    if value is None:
        return After(source)
    if not isinstance(value, YamlMapping):
        fields.add_problem(source, f"it must be a mapping such as {{catch: [ValueError]}}, not {shown(value)}")
        return After(source)
    inner = fields.inside(source, value)
    edge = After(
        source, inner.strings("catch", "the name of an error"), inner.expression("when"), inner.boolean("otherwise")
    )
    inner.finish()
    return edge
