"""The code and the input that a command names.

``shop.py:checkout`` is a workflow in a file, ``shop.orders:checkout`` one in a module. ``--input`` is untrusted JSON,
which is checked first and then bound to the parameters of the workflow: an object has the arguments by name, an array
by position. For a workflow with one parameter the JSON may also be the argument itself.
"""

import importlib
import importlib.util
import inspect
import sys
import traceback
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, Final, cast

import msgspec

from holdfast.authoring.workflow import BoundWorkflow, Workflow
from holdfast.cli.store_option import is_there
from holdfast.core.versions import version_key
from holdfast.errors import ArgumentError, HoldfastError, PayloadError, UsageError
from holdfast.payloads.limits import PAYLOAD_LIMIT_BYTES
from holdfast.payloads.signature import LONGEST_NAME
from holdfast.payloads.untrusted import check_untrusted
from holdfast.runtime.importing import StartedByImport, importing


@dataclass(frozen=True, slots=True)
class Application:
    """Imported modules and the workflow to run, which is one of theirs or a flow from a YAML file."""

    modules: tuple[ModuleType, ...]
    workflow: Workflow[..., Any]
    flows: tuple[Workflow[..., Any], ...] = ()
    """Flows from YAML files."""


def load_application(target: str) -> Application:
    """Imports the module and finds the workflow; `UsageError` with the reason if that fails."""
    source, colon, wanted = target.rpartition(":")
    if not colon:
        source, wanted = target, ""
    if not source or "\0" in target:
        raise UsageError(f"{target!r} names no workflow; write FILE.py:WORKFLOW or MODULE:WORKFLOW")
    module = _import(source)
    return Application((module,), _find_workflow(module, source, wanted))


def load_module(source: str) -> ModuleType:
    """Imports a module by its file or its name."""
    if ":" in source:
        raise UsageError(
            f"{source!r} names a part of a module, and the command takes all of it; write FILE.py or MODULE"
        )
    if not source or "\0" in source:
        raise UsageError(f"{source!r} names no module; write FILE.py or MODULE")
    return _import(source)


def load_function(target: str, option: str) -> Any:
    """Imports a module and finds one of its functions: ``FILE.py:NAME`` or ``MODULE:NAME``."""
    source, _, name = target.rpartition(":")
    if not source or not name.isidentifier() or "\0" in target:
        raise UsageError(f"{option} {target!r} names no function; write FILE.py:FUNCTION or MODULE:FUNCTION")
    found = vars(_import(source)).get(name)
    if found is None:
        raise UsageError(f"{option} {target!r}: {source} has no {name!r}")
    return found


def _import(source: str) -> ModuleType:
    is_file = source.endswith(".py") or "/" in source
    return _import_file(Path(source)) if is_file else _import_module(source)


def _import_file(path: Path) -> ModuleType:
    if not is_there(path) or not path.is_file():
        raise UsageError(f"there is no file {str(path)!r}")
    name = path.stem
    if not name.isidentifier():
        raise UsageError(f"{path.name!r} cannot be imported: the name of the file must be an identifier")
    loaded = sys.modules.get(name)
    if loaded is not None:
        if Path(getattr(loaded, "__file__", None) or "").resolve() == path.resolve():
            return loaded
        raise UsageError(f"{path.name!r} has the name of another module, {name!r}; rename the file")
    folder = str(path.parent.resolve())
    if folder not in sys.path:
        sys.path.insert(0, folder)
    spec = importlib.util.spec_from_file_location(name, path.resolve())
    if spec is None or spec.loader is None:
        raise UsageError(f"{path.name!r} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        with importing():
            spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        raise UsageError(_why(str(path), error)) from error
    return module


def _import_module(name: str) -> ModuleType:
    if not all(part.isidentifier() for part in name.split(".")):
        raise UsageError(f"{name!r} is neither a file that ends in .py nor the name of a module")
    folder = str(Path.cwd())
    if folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        with importing():
            return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            raise UsageError(f"there is no module {name!r}") from error
        raise UsageError(_why(name, error)) from error
    except (Exception, SystemExit) as error:
        raise UsageError(_why(name, error)) from error


def _why(source: str, error: BaseException) -> str:
    """The reason of a failed import, with the last line of user code, or the line that starts an engine or client."""
    reason = str(error) if isinstance(error, HoldfastError) else f"{type(error).__name__}: {error}"
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not _is_ours(frame.filename)]
    frame = frames[0 if isinstance(error, StartedByImport) else -1] if frames else None
    where = "" if frame is None else f" (line {frame.lineno} of {Path(frame.filename).name})"
    return f"{source} cannot be imported: {reason}{where}"


def _is_ours(filename: str) -> bool:
    is_import = filename.startswith("<frozen importlib") or filename == importlib.__file__
    return is_import or Path(filename).is_relative_to(Path(__file__).parents[1])


def _find_workflow(module: ModuleType, source: str, wanted: str) -> Workflow[..., Any]:
    values: dict[str, Any] = vars(module)
    known = {name: cast("Workflow[..., Any]", value) for name, value in values.items() if isinstance(value, Workflow)}
    if wanted in known:
        return known[wanted]
    named = [workflow for workflow in known.values() if workflow.name == wanted or not wanted]
    if named and len({workflow.name for workflow in named}) == 1:
        return max(named, key=lambda workflow: version_key(workflow.version))
    if not known:
        raise UsageError(f"{source} has no workflow; mark an async function with @hf.workflow")
    choices = ", ".join(f"{source}:{name}" for name in known)
    if not wanted:
        raise UsageError(f"{source} has several workflows; name one: {choices}")
    if wanted in values:
        raise UsageError(f"{wanted!r} of {source} is not marked with @hf.workflow; it has {choices}")
    raise UsageError(f"{source} has no workflow {wanted!r}; it has {choices}")


NO_OBJECT: Final = "got `object` - at `$`"
"""The error of a parameter that takes no object: then an object is arguments by name, with a misspelled name."""


def bind_input(workflow: Workflow[..., Any], text: str | None) -> BoundWorkflow[Any]:
    """Binds the input to the workflow; `ArgumentError` if it does not fit the signature."""
    if text is None:
        try:
            return BoundWorkflow(workflow, workflow.signature.normalise(b"{}"))
        except ArgumentError as error:
            raise ArgumentError(f"{error} with --input") from error
    return BoundWorkflow(workflow, _normalised(workflow, checked_json(text)))


def checked_json(text: str) -> bytes:
    """The bytes of untrusted JSON, checked for size, depth and syntax."""
    try:
        data = text.encode()
    except UnicodeEncodeError as error:
        raise UsageError("the input is not UTF-8") from error
    try:
        check_untrusted(data, max_bytes=PAYLOAD_LIMIT_BYTES)
    except PayloadError as error:
        if text.isidentifier():
            raise UsageError(
                f"{text[:LONGEST_NAME]} is not valid JSON; a string has quotes: '\"{text[:LONGEST_NAME]}\"'"
            ) from error
        raise
    return data


def _normalised(workflow: Workflow[..., Any], data: bytes) -> bytes:
    parameters = list(inspect.signature(workflow.fn).parameters)
    if len(parameters) != 1:
        return workflow.signature.normalise(data)
    value: Any = msgspec.json.decode(data)
    is_call = parameters[0] in value if data.lstrip()[:1] == b"{" else data.lstrip()[:1] == b"[" and len(value) == 1
    as_value = b"[%b]" % data
    first, second = (data, as_value) if is_call else (as_value, data)
    try:
        return workflow.signature.normalise(first)
    except ArgumentError as error:
        try:
            return workflow.signature.normalise(second)
        except ArgumentError as other:
            raise (other if NO_OBJECT in str(error) else error) from None
