"""A flow from YAML: read and checked, with all problems told at once."""

from pathlib import Path
from typing import Final, NamedTuple

from holdfast.authoring.names import checked_name
from holdfast.core.flow.definition import FlowDefinition, Node
from holdfast.core.flow.outcomes import FailurePolicy
from holdfast.errors import FlowError, FlowProblem, HoldfastError, UsageError
from holdfast.flows.checking import KnownNames, check_into
from holdfast.flows.documents import LARGEST_BYTES, Tree, YamlMapping, YamlScalar, read_document
from holdfast.flows.forms import Places, YamlFields, shown, was_told
from holdfast.flows.libraries import require_libraries
from holdfast.flows.nodes import read_node
from holdfast.flows.problems import Problems, quoted

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
        form.wrong("flow", str(error))
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
            inner.wrong(
                field, f"{quoted(field)} must be one of {', '.join(INPUT_TYPES)}, not {given}", suggestion=suggestion
            )
        elif isinstance(word, str):
            found[field] = word
    return found


def _nodes(form: YamlFields, problems: Problems, places: Places) -> tuple[list[Node], frozenset[str]]:
    tree = form.take("activities")
    if not isinstance(tree, YamlMapping) or not tree.entries:
        given = shown(tree) if tree is not None and not isinstance(tree, YamlMapping) else "nothing"
        form.wrong("activities", f"activities must be a map with a trigger and what comes after it, not {given}")
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
