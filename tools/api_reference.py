"""Renders docs/reference/api.md from the signatures and docstrings of the public names.

Every name of `holdfast.__all__` and `holdfast.testing.__all__` belongs to exactly one section of `SECTIONS`; a name
without a section, or without a docstring, is an error. Annotations are printed as the source has them. Names with a
leading underscore, deprecated names and the citations of rules are left out.
"""

import ast
import inspect
import re
import textwrap
from collections.abc import Iterator
from typing import Any, Final

import holdfast
from holdfast import testing
from holdfast.audit import backup
from holdfast.client import restoring, search
from holdfast.client.views import builds, instances, overview
from holdfast.client.views.instances import NEWEST
from holdfast.flows.builder import NodeRef

SECTIONS: Final[dict[str, tuple[str, ...]]] = {
    "Definitions": ("workflow", "Workflow", "activity", "Activity", "StreamActivity", "Retry", "Retention", "Flow"),
    "In workflow code": (
        "now",
        "random",
        "uuid4",
        "side_effect",
        "patched",
        "info",
        "WorkflowInfo",
        "event",
        "events",
        "Event",
        "raise_event",
        "cancel",
        "start",
        "ChildHandle",
        "state",
        "attributes",
        "set_status",
        "wait_until",
        "on_query",
        "Query",
        "on_update",
        "Update",
        "UpdateInfo",
        "update_info",
        "all_handlers_finished",
        "continue_as_new",
        "log",
    ),
    "In activities": ("heartbeat", "activity_info", "ActivityInfo", "idempotency_key", "context", "Cancelled"),
    "Engines, clients and workers": (
        "Engine",
        "connect",
        "Client",
        "Handle",
        "UpdateHandle",
        "Change",
        "Worker",
        "backup",
    ),
    "Launchers": ("Launcher", "LaunchTask", "CommandLauncher"),
}
"""The names of `holdfast` by section. Errors have a page of their own; `testing` has the last section."""

RETURNED: Final = (
    instances.Summary,
    search.InstancePage,
    search.Count,
    instances.Description,
    instances.AttemptView,
    instances.StepView,
    instances.MessageView,
    instances.UpdateView,
    instances.SetAsideEvent,
    instances.Excerpt,
    restoring.RestoreReport,
    restoring.RunningStep,
    backup.BackupReport,
    instances.HistoryEntry,
    overview.WorkerView,
    builds.BuildView,
    overview.QueueView,
    NodeRef,
)
"""Classes of returned values, which programs read and do not import."""
ALIASES: Final = {
    "Duration": "seconds, or a `datetime.timedelta`",
    "DeadlineOption": "a `Duration`, None for no deadline, or omitted: that of the workflow",
    "Limit": "a `Duration`, or None for no limit",
    "Length": "a `Duration`, a string such as `1h30m`, or an expression that gives seconds",
    "EventPolicyOption": '`"mailbox"` or `"drop_unsubscribed"`',
    "IdPolicyOption": '`"idempotent"`, `"reuse"` or `"terminate_existing"`',
    "ParentCloseOption": '`"terminate"`, `"cancel"` or `"abandon"`',
    "AnyWorkflow": "a workflow or a flow, with any parameters",
    "AnyActivity": "an activity, with any parameters",
    "NamedEvent": 'a name or an `hf.Event`, and a value: `("approval", value)`',
    "EdgeArguments": "a node, its id, an edge such as `fox.failed(TooTired)`, or a list of them",
    "ConditionArgument": "an expression: a CEL string, or one made from a node such as `start.input.cents > 5`",
    "Where": "an activity, a name, the number of a commit, or `...` for every commit",
}
"""The names of types in signatures."""
MADE_INSIDE: Final = frozenset(
    {
        "Activity",
        "Cancelled",
        "Change",
        "ChildHandle",
        "Client",
        "Crash",
        "CrashReport",
        "Handle",
        "StreamActivity",
        "Workflow",
    }
)
"""Classes whose objects come from other calls, so that their constructors are not public."""
LEFT_OUT: Final = frozenset({"__version__", "testing", "errors"})
INTERNAL: Final = frozenset(
    {
        "bundled_code",
        "check_against",
        "encoded_options",
        "fingerprint",
        "first_key",
        "hash",
        "is_due",
        "kind",
        "line_of",
        "policy",
        "queues_named",
        "signature",
    }
)
"""Members without a leading underscore that other packages of Holdfast call and users do not."""
DEPRECATED: Final = "status"
"""The former name of `state`, as a parameter and as an attribute of a value."""
CITATION: Final = re.compile(r" \([A-Z]\d+(?:, [A-Z]\d+)*\)")
"""The number of a rule, for readers of the source."""
WIDTH_COLUMNS: Final = 100
_END: Final = "(end of the docstring)"
INHERITED_FROM_OUTSIDE: Final = ("builtins", "msgspec", "enum", "typing")


def api_page(note: str) -> str:
    """The page. Raises `ValueError` for a public name without a section or a docstring."""
    _check_sections()
    lines = [note, "# Python API", "", "`import holdfast as hf`. Errors are on [their own page](errors.md)."]
    lines += ["", "Types in the signatures:", "", "| type | values |", "|---|---|"]
    lines += [f"| `{name}` | {meaning} |" for name, meaning in ALIASES.items()]
    for title, names in SECTIONS.items():
        lines += ["", f"## {title}"]
        for name in names:
            lines += _entry(f"hf.{name}", getattr(holdfast, name))
    lines += ["", "## Returned values", "", "Objects with these attributes come from the calls above."]
    for shape in RETURNED:
        lines += ["", f"### `{shape.__name__}`", *_docstring(shape.__name__, shape), *_members(shape)]
    lines += ["", "## Testing", "", "`from holdfast import testing`"]
    for name in sorted(testing.__all__):
        lines += _entry(f"testing.{name}", getattr(testing, name))
    return "\n".join([*lines, ""])


def _check_sections() -> None:
    listed = [name for names in SECTIONS.values() for name in names]
    public = {
        name
        for name in holdfast.__all__
        if (name not in LEFT_OUT and not _is_error(getattr(holdfast, name))) or name in listed
    }
    missing = public.symmetric_difference(listed)
    if missing or len(listed) != len(set(listed)):
        raise ValueError(f"SECTIONS of tools/api_reference.py and holdfast.__all__ differ: {sorted(missing)}")


def _is_error(value: object) -> bool:
    return isinstance(value, type) and value.__module__ == "holdfast.errors"


def _entry(name: str, value: Any) -> Iterator[str]:
    yield ""
    yield f"### `{name}`"
    if inspect.isroutine(value):
        yield ""
        yield from _code(f"{_awaited(value)}{name}", *_signature(value))
        yield from _docstring(name, value)
        return
    shape = value if isinstance(value, type) else type(value)
    if isinstance(value, type) and value.__name__ not in MADE_INSIDE:
        yield ""
        yield from _code(name, _constructor(value), "")
    yield from _docstring(name, shape)
    yield from _members(shape)


def _members(shape: type) -> Iterator[str]:
    """The attributes, properties and methods with a docstring; all attributes if the constructor is not shown."""
    is_value = shape in RETURNED or shape.__name__ in MADE_INSIDE
    for name, (annotation, text) in _fields(shape).items():
        if text or (is_value and not isinstance(vars(shape).get(name), str)):
            yield from ["", f"- `{name}: {annotation}`" + (f": {text}" if text else "")]
    for name, member in inspect.getmembers_static(shape):
        if name.startswith("_") or name in INTERNAL or name == DEPRECATED or not _is_documented_here(shape, name):
            continue
        function = _function_of(member)
        if function is None or not inspect.getdoc(function):
            continue
        if not str(getattr(function, "__module__", "")).startswith("holdfast"):
            continue  # a method of a mapping or a list, as Python documents it
        first, *others = _paragraphs(name, function)
        if isinstance(member, property):
            yield from ["", f"- `{name}`: {first}"]
        else:
            yield from _method(f"{_awaited(function)}{name}", function, first)
        yield from (f"  {line}" if line else "" for line in others)


def _method(name: str, function: Any, first: str) -> Iterator[str]:
    """The item of a method: its signature in one line, or in a block if it is long."""
    parts, returns = _signature(function)
    line = f"{name}({', '.join(parts)}){returns}"
    if len(line) <= WIDTH_COLUMNS:
        yield from ["", f"- `{line}`: {first}"]
        return
    yield from ["", f"- `{name}`: {first}", ""]
    yield from (f"  {line}" for line in _code(name, parts, returns))


def _paragraphs(name: str, function: Any) -> list[str]:
    """The first paragraph of a docstring as one line, then the lines of the others."""
    lines = list(_docstring(name, function))[1:]
    end = lines.index("") if "" in lines else len(lines)
    return [" ".join(lines[:end]), *lines[end:]]


def _awaited(function: Any) -> str:
    return "await " if inspect.iscoroutinefunction(function) else ""


def _is_documented_here(shape: type, name: str) -> bool:
    home = next(base for base in shape.__mro__ if name in vars(base))
    return not home.__module__.startswith(INHERITED_FROM_OUTSIDE) and (home is shape or home is not holdfast.Client)


def _function_of(member: Any) -> Any:
    if isinstance(member, property):
        return member.fget
    if hasattr(member, "__func__"):  # a class method or a static method
        return member.__func__
    return member if inspect.isfunction(member) else None


def _constructor(shape: type) -> list[str]:
    """The parameters of a class: those of its `__init__`, or the fields of a dataclass or msgspec structure."""
    initializer = inspect.getattr_static(shape, "__init__")
    if inspect.isfunction(initializer) and "__dataclass_fields__" not in vars(shape):
        return _signature(initializer)[0]
    return [ast.unparse(each) for each in _definition(shape).body if isinstance(each, ast.AnnAssign)]


def _definition(shape: type) -> ast.ClassDef:
    definition = ast.parse(textwrap.dedent(inspect.getsource(shape))).body[0]
    if not isinstance(definition, ast.ClassDef):
        raise TypeError(f"{shape} is not a class definition")
    return definition


def _fields(shape: type) -> dict[str, tuple[str, str]]:
    """The public attributes that a class and its bases declare: annotation and docstring."""
    found: dict[str, tuple[str, str]] = {}
    for base in reversed(shape.__mro__):
        if not base.__module__.startswith("holdfast.") or base is holdfast.Client is not shape:
            continue
        body = _definition(base).body
        for statement, after in zip(body, [*body[1:], None], strict=True):
            if not isinstance(statement, ast.AnnAssign) or not isinstance(statement.target, ast.Name):
                continue
            name = statement.target.id
            if name.startswith("_") or name in INTERNAL:
                continue
            text = ""
            if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant):
                text = CITATION.sub("", " ".join(str(after.value.value).split()).replace("``", "`"))
            found[name] = (ast.unparse(statement.annotation).strip("'"), text)
    return found


def _signature(function: Any) -> tuple[list[str], str]:
    """The parameters and the result: annotations as the source has them, defaults as values, nothing private."""
    definition = ast.parse(textwrap.dedent(inspect.getsource(function))).body[0]
    if not isinstance(definition, ast.FunctionDef | ast.AsyncFunctionDef):
        raise TypeError(f"{function} is not a function definition")
    annotations = {
        argument.arg: ast.unparse(argument.annotation)
        for argument in ast.walk(definition.args)
        if isinstance(argument, ast.arg) and argument.annotation is not None
    }
    shown = [
        parameter
        for parameter in inspect.signature(function).parameters.values()
        if parameter.name not in {"self", "cls", DEPRECATED} and not parameter.name.startswith("_")
    ]
    parts: list[str] = []
    for before, parameter in zip([None, *shown], shown, strict=False):
        if before is not None and before.kind is before.POSITIONAL_ONLY != parameter.kind:
            parts.append("/")
        is_first_keyword = parameter.kind is parameter.KEYWORD_ONLY and (
            before is None or before.kind not in {before.KEYWORD_ONLY, before.VAR_POSITIONAL}
        )
        if is_first_keyword:
            parts.append("*")
        parts.append(_parameter(parameter, annotations.get(parameter.name, "")))
    returns = "" if definition.returns is None else ast.unparse(definition.returns).replace("'", "")
    return parts, "" if returns in {"", "None"} else f" -> {returns}"


def _parameter(parameter: inspect.Parameter, annotation: str) -> str:
    star = "*" if parameter.kind is parameter.VAR_POSITIONAL else ""
    star = "**" if parameter.kind is parameter.VAR_KEYWORD else star
    text = f"{star}{parameter.name}" + (f": {annotation.strip(chr(39))}" if annotation else "")
    if parameter.default is parameter.empty:
        return text
    is_placeholder = parameter.default is ... or parameter.default is NEWEST
    default = "..." if is_placeholder else repr(getattr(parameter.default, "value", parameter.default))
    return f"{text} = {default}" if annotation else f"{text}={default}"


def _code(name: str, parts: list[str], returns: str) -> list[str]:
    """A signature: in one line, or with a line for each parameter."""
    line = f"{name}({', '.join(parts)}){returns}"
    lines = [line] if len(line) <= WIDTH_COLUMNS else [f"{name}(", *(f"    {part}," for part in parts), f"){returns}"]
    return ["```python", *lines, "```"]


def _docstring(name: str, value: object) -> Iterator[str]:
    text = inspect.getdoc(value)
    if not text:
        raise ValueError(f"{name} is public and has no docstring")
    yield ""
    code: list[str] = []
    for line in [*CITATION.sub("", text).replace("``", "`").splitlines(), _END]:
        if line.startswith("    ") or (code and not line):
            code.append(line.removeprefix("    "))
            continue
        if code:
            yield from ["```python", *"\n".join(code).strip("\n").splitlines(), "```", ""]
            code = []
        if line is not _END:
            yield line.removesuffix(":") if line.endswith("::") else line
