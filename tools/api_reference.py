"""Renders docs/reference/api.md from the signatures and docstrings of the public names.

Every name of `holdfast.__all__` and `holdfast.testing.__all__` belongs to exactly one section of `SECTIONS`; a name
without a section, or without a docstring, is an error. Annotations are printed as the source has them.
"""

import ast
import inspect
import textwrap
from collections.abc import Iterator
from typing import Any, Final

import holdfast
from holdfast import testing

SECTIONS: Final[dict[str, tuple[str, ...]]] = {
    "Definitions": ("workflow", "Workflow", "activity", "Activity", "StreamActivity", "Retry", "Flow"),
    "In workflow code": (
        "now",
        "random",
        "uuid4",
        "side_effect",
        "info",
        "WorkflowInfo",
        "event",
        "events",
        "Event",
        "raise_event",
        "start",
        "ChildHandle",
        "state",
        "set_status",
        "wait_until",
        "on_query",
        "Query",
        "on_update",
        "Update",
        "updates_finished",
        "continue_as_new",
        "log",
    ),
    "In activities": ("heartbeat", "activity_info", "ActivityInfo", "idempotency_key", "Cancelled"),
    "Engines, clients and workers": ("Engine", "connect", "Client", "Handle", "Change", "Worker"),
}
"""The names of `holdfast` by section. Errors have a page of their own; `testing` has the last section."""

LEFT_OUT: Final = frozenset({"__version__", "testing", "errors"})
INTERNAL: Final = frozenset(
    {
        "bundled_code",
        "check_against",
        "encoded_options",
        "fingerprint",
        "first_key",
        "hash",
        "line_of",
        "policy",
        "queues_named",
        "signature",
    }
)
"""Members without a leading underscore that other packages of Holdfast call and users do not."""
_END: Final = "(end of the docstring)"
INHERITED_FROM_OUTSIDE: Final = ("builtins", "msgspec", "enum", "typing")


def api_page(note: str) -> str:
    """The page. Raises `ValueError` for a public name without a section or a docstring."""
    _check_sections()
    lines = [note, "# Python API", "", "`import holdfast as hf`. Errors are on [their own page](errors.md)."]
    for title, names in SECTIONS.items():
        lines += ["", f"## {title}"]
        for name in names:
            lines += _entry(f"hf.{name}", getattr(holdfast, name))
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
        yield from _code(f"{name}{_signature(value)}")
        yield from _docstring(name, value)
        return
    if inspect.ismodule(value):
        yield from _docstring(name, value)
        return
    shape = value if isinstance(value, type) else type(value)
    if isinstance(value, type) and not _is_made_inside(value):
        yield from _code(f"{name}{_constructor(value)}")
    yield from _docstring(name, shape)
    yield from _members(shape)


def _is_made_inside(shape: type) -> bool:
    """Whether users get objects of this class from other calls, so that its constructor is not public."""
    return shape.__name__ in {"Client", "Handle", "Change", "ChildHandle", "Activity", "StreamActivity", "Workflow"}


def _members(shape: type) -> Iterator[str]:
    own = [
        (name, member)
        for name, member in inspect.getmembers_static(shape)
        if not name.startswith("_") and name not in INTERNAL and _is_documented_here(shape, name)
    ]
    for name, member in own:
        function = _function_of(member)
        if function is None or not inspect.getdoc(function):
            continue
        text = " ".join((inspect.getdoc(function) or "").split("\n\n")[0].split())
        if isinstance(member, property):
            yield from ["", f"- `{name}`: {text}"]
        else:
            prefix = "await " if inspect.iscoroutinefunction(function) else ""
            yield from ["", f"- `{prefix}{name}{_signature(function)}`: {text}"]


def _is_documented_here(shape: type, name: str) -> bool:
    home = next(base for base in shape.__mro__ if name in vars(base))
    return not home.__module__.startswith(INHERITED_FROM_OUTSIDE) and (home is shape or home is not holdfast.Client)


def _function_of(member: Any) -> Any:
    if isinstance(member, property):
        return member.fget
    if hasattr(member, "__func__"):  # a class method or a static method
        return member.__func__
    return member if inspect.isfunction(member) else None


def _constructor(shape: type) -> str:
    """The parameters of a class: those of its `__init__`, or the fields of a dataclass or msgspec structure."""
    own = vars(shape)
    if "__init__" in own and "__dataclass_fields__" not in own:
        return _signature(own["__init__"])
    definition = ast.parse(textwrap.dedent(inspect.getsource(shape))).body[0]
    if not isinstance(definition, ast.ClassDef):
        raise TypeError(f"{shape} is not a class definition")
    fields = [ast.unparse(each) for each in definition.body if isinstance(each, ast.AnnAssign)]
    return f"({', '.join(fields)})"


def _signature(function: Any) -> str:
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
        if parameter.name not in {"self", "cls"} and not parameter.name.startswith("_")
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
    return f"({', '.join(parts)})" + ("" if returns in {"", "None"} else f" -> {returns}")


def _parameter(parameter: inspect.Parameter, annotation: str) -> str:
    star = "*" if parameter.kind is parameter.VAR_POSITIONAL else ""
    star = "**" if parameter.kind is parameter.VAR_KEYWORD else star
    text = f"{star}{parameter.name}" + (f": {annotation.strip(chr(39))}" if annotation else "")
    if parameter.default is parameter.empty:
        return text
    default = "..." if parameter.default is ... else repr(getattr(parameter.default, "value", parameter.default))
    return f"{text} = {default}" if annotation else f"{text}={default}"


def _code(text: str) -> list[str]:
    return ["", "```python", *textwrap.wrap(text, 100, subsequent_indent="    ", break_long_words=False), "```"]


def _docstring(name: str, value: object) -> Iterator[str]:
    text = inspect.getdoc(value)
    if not text:
        raise ValueError(f"{name} is public and has no docstring")
    yield ""
    code: list[str] = []
    for line in [*text.replace("``", "`").splitlines(), _END]:
        if line.startswith("    ") or (code and not line):
            code.append(line.removeprefix("    "))
            continue
        if code:
            yield from ["```python", *"\n".join(code).strip("\n").splitlines(), "```", ""]
            code = []
        if line is not _END:
            yield line.removesuffix(":") if line.endswith("::") else line
