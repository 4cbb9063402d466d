"""The workflows and activities that one engine knows. There is no global list: two engines never collide.

The exception types that registered code can name, so that ``except Declined`` works across the store.

Code can name what its module defines or has imported: a class, or a module that has it. Nothing is imported here, and
no name comes from data. The list is made once, when an engine is made: whether a type is known does not depend on what
some body imports later, and so every replay raises the same.
"""

import inspect
import sys
from collections.abc import Iterable
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any, Final, TypeVar, cast

from holdfast import errors
from holdfast.authoring.activity import Activity, AnyActivity
from holdfast.authoring.definition import not_a_function
from holdfast.authoring.validation import checked_sequence
from holdfast.authoring.workflow import AnyWorkflow, Workflow
from holdfast.core.activity_options import DEFAULT_QUEUE
from holdfast.errors import DuplicateName, UnknownActivity, UnknownWorkflow, UsageError
from holdfast.payloads.failures import qualified_name, resolve_builtin

ErrorTypes = dict[str, type[BaseException]]


def known_errors(modules: Iterable[ModuleType]) -> ErrorTypes:
    """By qualified name: the exception types that code in these modules can name."""
    known: ErrorTypes = {}
    seen: set[int] = set()
    for module in modules:
        for value in [module, *_names_of(module).values()]:
            _add(value, known, seen)
    return known


def _add(value: object, known: ErrorTypes, seen: set[int]) -> None:
    """A class and those inside it; the classes of a module and of modules below it (`shop.errors` of ``import shop``).

    Asked by `type` and not by `isinstance`, which runs code of objects that stand for others.
    """
    kind = type(value)
    if issubclass(kind, ModuleType):
        _add_module(cast("ModuleType", value), known, seen)
    elif issubclass(kind, type):
        _add_class(cast("type[Any]", value), known)


def _add_module(module: ModuleType, known: ErrorTypes, seen: set[int]) -> None:
    if id(module) in seen:
        return
    seen.add(id(module))
    names = _names_of(module)
    below = f"{names.get('__name__')}."
    for value in names.values():
        if not issubclass(type(value), ModuleType) or str(_names_of(value).get("__name__")).startswith(below):
            _add(value, known, seen)


def _add_class(cls: type[Any], known: ErrorTypes) -> None:
    if issubclass(cls, BaseException):
        known.setdefault(qualified_name(cls), cls)
    inside: dict[str, Any] = dict(vars(cast("type", cls)))
    for inner in inside.values():
        if issubclass(type(inner), type) and inner.__qualname__ == f"{cls.__qualname__}.{inner.__name__}":
            _add_class(inner, known)


def _names_of(module: ModuleType) -> dict[str, Any]:
    """What a module has, without asking it: one that loads itself when it is first asked is left as it is."""
    return dict(object.__getattribute__(module, "__dict__"))


BUILD_DIGITS: Final = 16
PLURALS: Final = {"workflow": "workflows", "activity": "activities"}
"""The parameters that definitions are given by."""
RegisteredCode = TypeVar("RegisteredCode", Workflow[..., Any], Activity[..., Any])


class Registry:
    """What was given by ``modules=``, ``workflows=``, ``activities=`` and ``flows=``, by name."""

    __slots__ = ("__dict__", "__weakref__", "_errors", "_modules", "activities", "signatures", "workflows")

    def __init__(
        self,
        modules: Iterable[ModuleType] = (),
        workflows: Iterable[AnyWorkflow] = (),
        activities: Iterable[AnyActivity] = (),
        flows: Iterable[AnyWorkflow] = (),
    ) -> None:
        self.workflows: dict[str, Workflow[..., Any]] = {}
        self.activities: dict[str, Activity[..., Any]] = {}
        self._modules: set[str] = set()
        for module in checked_sequence(modules, "modules"):
            self._add_module(module)
        for workflow in checked_sequence(workflows, "workflows"):
            self._add(self.workflows, cast("Workflow[..., Any]", workflow), Workflow)
        for activity in checked_sequence(activities, "activities"):
            self._add(self.activities, cast("Activity[..., Any]", activity), Activity)
        for flow in checked_sequence(flows, "flows"):
            if not getattr(flow, "is_flow", False):
                raise UsageError(f"flows= takes flows, such as hf.Flow.load('order.yaml'), not {flow!r}")
            self._add(self.workflows, cast("Workflow[..., Any]", flow), Workflow)
        for workflow in list(self.workflows.values()):
            self._add_what_is_brought(workflow)
        # Annotations that cannot be stored are found now, not at the first call.
        self.signatures = [workflow.signature for workflow in self.workflows.values()]
        self.signatures += [activity.signature for activity in self.activities.values()]
        self._errors = known_errors(
            [errors, *(sys.modules[name] for name in sorted(self._modules) if name in sys.modules)]
        )

    @cached_property
    def build(self) -> str:
        """A fingerprint of the registered code and of the files that define it: another one may know better (G12)."""
        digest = sha256(sys.version.encode())
        functions = [(workflow.name, workflow.fn) for workflow in self.workflows.values() if not workflow.is_flow]
        functions += [(activity.name, activity.fn) for activity in self.activities.values()]
        for workflow in self.workflows.values():
            digest.update(workflow.fingerprint.encode())
        for name, function in functions:
            digest.update(f"{name} {_fingerprint(function.__code__)}\n".encode())
        for name in sorted(self._modules):
            source = getattr(sys.modules.get(name), "__file__", None)
            if source is not None and Path(source).is_file():
                digest.update(Path(source).read_bytes())
        return digest.hexdigest()[:BUILD_DIGITS]

    @property
    def queues(self) -> tuple[str, ...]:
        """What is served where nobody says which queues: the default one, and those of the activities and flows here.

        So no activity that is known here waits for a worker that never comes.
        """
        named = {queue for workflow in self.workflows.values() for queue in workflow.queues}
        return tuple(sorted({DEFAULT_QUEUE, *named, *(one.options.queue for one in self.activities.values())}))

    def workflow(self, name: str) -> Workflow[..., Any]:
        """The workflow of that name."""
        try:
            return self.workflows[name]
        except KeyError:
            known = ", ".join(sorted(self.workflows)) or "none"
            raise UnknownWorkflow(f"no workflow {name!r} is registered here; known: {known}") from None

    def check(self) -> None:
        """Whether everything that flows name is there: asked where they are to run, not where they are only started."""
        for workflow in self.workflows.values():
            workflow.check_against(self.activity_called)

    def activity_called(self, name: str) -> Activity[..., Any]:
        """The activity of that name, or of the function ``module.function``, as flows write it."""
        known = self.activities.get(name)
        if known is not None:
            return known
        dotted = f".{name}"
        found = [each for each in self.activities.values() if f".{each.__module__}.{each.__name__}".endswith(dotted)]
        if len(found) == 1:
            return found[0]
        why = "several have" if found else f"none has; known: {', '.join(sorted(self.activities)) or 'none'}"
        raise UnknownActivity(f"one activity called {name!r} is needed here, and {why}")

    def resolve(self, name: str) -> type[BaseException] | None:
        """The exception type of that qualified name, if it is Python's, ours, or registered code can name it."""
        return resolve_builtin(name) or self._errors.get(name)

    def _add_module(self, module: object) -> None:
        if not isinstance(module, ModuleType):
            raise UsageError(f"modules= takes modules, not {module!r}; single ones go into workflows= or activities=")
        self._modules.add(module.__name__)
        values: list[Any] = list(vars(module).values())
        for value in values:
            if isinstance(value, Workflow):
                self._add(self.workflows, cast("Workflow[..., Any]", value), Workflow)
            elif isinstance(value, Activity):
                self._add(self.activities, cast("Activity[..., Any]", value), Activity)

    def _add_what_is_brought(self, workflow: Workflow[..., Any]) -> None:
        """The activities and workflows that a flow was built from, and those that these were."""
        for brought in workflow.bundled_code:
            if isinstance(brought, Activity):
                self._add(self.activities, cast("Activity[..., Any]", brought), Activity)
            elif isinstance(brought, Workflow):
                child = cast("Workflow[..., Any]", brought)
                is_new = child.name not in self.workflows
                self._add(self.workflows, child, Workflow)
                if is_new:
                    self._add_what_is_brought(child)

    def _add(self, known: dict[str, RegisteredCode], definition: RegisteredCode, expected: type[Any]) -> None:
        if not isinstance(definition, expected):
            raise UsageError(_not_marked(definition, expected.__name__.lower()))
        other = known.setdefault(definition.name, definition)
        if other is not definition:
            raise DuplicateName(_duplicate(other, definition))
        self._modules.add(definition.fn.__module__)


def _not_marked(given: object, kind: str) -> str:
    """What was registered instead of a definition, and what to write."""
    if isinstance(given, Workflow | Activity):
        other = "workflow" if isinstance(given, Workflow) else "activity"
        return f"{cast('Any', given)!r} is marked with @hf.{other}; give it as {PLURALS[other]}=[...]"
    if inspect.isfunction(given):
        return f"{given.__qualname__} is not marked; write @hf.{kind} above it"
    return f"{not_a_function(given)}, and mark it with @hf.{kind}"


def _duplicate(one: Workflow[..., Any] | Activity[..., Any], other: Workflow[..., Any] | Activity[..., Any]) -> str:
    """Why two of one name cannot be here."""
    said = f"two of the name {one.name!r}: {_origin(one)} and {_origin(other)}"
    if all(isinstance(each, Workflow) and each.is_flow for each in (one, other)):
        return f"{said}; give the newer one only: what was started with the older one stays with that"
    return f"{said}; give one of them another name=..."


def _origin(one: Workflow[..., Any] | Activity[..., Any]) -> str:
    if isinstance(one, Workflow) and one.is_flow:
        return (
            f"a flow of {f'version {one.version!r}' if one.version else 'no version'} with the hash {one.fingerprint}"
        )
    return f"in {one.__module__}"


def _fingerprint(code: CodeType) -> str:
    """The instructions of a function and of those inside it. What surrounds them (lines, paths) does not count."""
    constants = [_constant(part) for part in code.co_consts]
    return sha256(f"{code.co_code.hex()} {code.co_names} {constants}".encode()).hexdigest()


def _constant(value: object) -> str:
    """A constant of the code as text: the same in every process, also where a set is shown in another order."""
    if isinstance(value, CodeType):
        return _fingerprint(value)
    if isinstance(value, tuple):
        return f"({', '.join(_constant(part) for part in cast('Iterable[object]', value))})"
    if isinstance(value, frozenset):
        return f"{{{', '.join(sorted(_constant(part) for part in cast('Iterable[object]', value)))}}}"
    return repr(value)
