"""The registered code of one engine: workflows by name and version, activities by name, and the exception types they
can name.

There is no global registry: two engines never collide.

The exception types make ``except Declined`` work across the store. Code can name the classes that its module defines or
has imported, and those of imported modules. The registry imports nothing, and no name comes from data. The list is made
once, with the registry: a later import of a body does not change it, so that every replay raises the same type.
"""

import inspect
import sys
from collections.abc import Iterable
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any, Final, cast

from holdfast import errors
from holdfast.authoring.activity import Activity, StreamActivity
from holdfast.authoring.activity_function import NO_OBJECT
from holdfast.authoring.definition import not_a_function
from holdfast.authoring.validation import checked_sequence
from holdfast.authoring.workflow import AnyWorkflow, Workflow
from holdfast.core.activity_options import DEFAULT_QUEUE
from holdfast.core.versions import in_order, newest_version, version_text
from holdfast.errors import DuplicateName, UnknownActivity, UnknownWorkflow, UsageError
from holdfast.payloads.failures import qualified_name, resolve_builtin

ErrorTypes = dict[str, type[BaseException]]


def known_errors(modules: Iterable[ModuleType]) -> ErrorTypes:
    """The exception types that code in these modules can name, by qualified name."""
    known: ErrorTypes = {}
    seen: set[int] = set()
    for module in modules:
        for value in [module, *_names_of(module).values()]:
            _add(value, known, seen)
    return known


def _add(value: object, known: ErrorTypes, seen: set[int]) -> None:
    """Add a class and its inner classes, or the classes of a module and its submodules (`shop.errors` of `shop`).

    The test uses `type` instead of `isinstance`, which runs code of proxy objects.
    """
    kind = type(value)
    if issubclass(kind, ModuleType):
        _add_module(cast("ModuleType", value), known, seen)
    elif issubclass(kind, type):
        _add_class(cast("type[Any]", value), known, seen)


def _add_module(module: ModuleType, known: ErrorTypes, seen: set[int]) -> None:
    if id(module) in seen:
        return
    seen.add(id(module))
    names = _names_of(module)
    below = f"{names.get('__name__')}."
    for value in names.values():
        if not issubclass(type(value), ModuleType) or str(_names_of(value).get("__name__")).startswith(below):
            _add(value, known, seen)


def _add_class(cls: type[Any], known: ErrorTypes, seen: set[int]) -> None:
    if id(cls) in seen:  # most classes have names in several modules
        return
    seen.add(id(cls))
    if issubclass(cls, BaseException):
        known.setdefault(qualified_name(cls), cls)
    inside: dict[str, Any] = dict(vars(cast("type", cls)))
    for inner in inside.values():
        if issubclass(type(inner), type) and inner.__qualname__ == f"{cls.__qualname__}.{inner.__name__}":
            _add_class(inner, known, seen)


def _names_of(module: ModuleType) -> dict[str, Any]:
    """The attributes of a module, read without its `__getattribute__`: a lazily loaded module stays unloaded."""
    return dict(object.__getattribute__(module, "__dict__"))


BUILD_DIGITS: Final = 16
PLURALS: Final = {"workflow": "workflows", "activity": "activities"}
"""The parameters that take definitions."""


class Registry:
    """The code of ``modules=``, ``workflows=``, ``activities=`` and ``flows=``.

    A workflow that is written as code may have several versions (R4). A flow has one here: the store has the others.
    """

    __slots__ = ("__dict__", "__weakref__", "_code", "_errors", "_modules", "activities", "signatures", "workflows")

    def __init__(
        self,
        modules: Iterable[ModuleType] = (),
        workflows: Iterable[AnyWorkflow] = (),
        activities: Iterable[object] = (),
        flows: Iterable[AnyWorkflow] = (),
    ) -> None:
        self.workflows: dict[str, Workflow[..., Any]] = {}
        """The newest version of each workflow, by name."""
        self._code: dict[str, dict[str, Workflow[..., Any]]] = {}
        """All versions, by name and version."""
        self.activities: dict[str, Activity[..., Any]] = {}
        self._modules: set[str] = set()
        for module in checked_sequence(modules, "modules"):
            self._add_module(module)
        for workflow in checked_sequence(workflows, "workflows"):
            self._add_workflow(workflow)
        for activity in checked_sequence(activities, "activities"):
            self._add_activity_or_methods(activity)
        for flow in checked_sequence(flows, "flows"):
            if not getattr(flow, "is_flow", False):
                raise UsageError(f"flows= takes flows, such as hf.Flow.load('order.yaml'), not {flow!r}")
            self._add_workflow(flow)
        for workflow in self.definitions:
            self._add_bundled_code(workflow)
        # Annotations that cannot be stored raise now, not at the first call.
        self.signatures = [workflow.signature for workflow in self.definitions]
        self.signatures += [activity.signature for activity in self.activities.values()]
        self._errors = known_errors(
            [errors, *(sys.modules[name] for name in sorted(self._modules) if name in sys.modules)]
        )
        for workflow in self.definitions:
            for declared in workflow.declared_failures or ():
                self._errors.setdefault(qualified_name(declared), declared)

    @cached_property
    def build(self) -> str:
        """A hash of the registered code and of its files. A blocked instance is tried again by another build (G12)."""
        digest = sha256(sys.version.encode())
        functions = [
            (f"{workflow.name} {workflow.version}".rstrip(), workflow.fn)
            for workflow in self.definitions
            if not workflow.is_flow
        ]
        functions += [(activity.name, activity.fn) for activity in self.activities.values()]
        for workflow in self.definitions:
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
        """The queues served when `queues=` is omitted: the default one, and those of registered activities and flows.

        So no registered activity waits for a worker that does not exist.
        """
        named = {queue for workflow in self.workflows.values() for queue in workflow.queues}
        named.update(one.options.queue for one in self.activities.values() if one.options.external is None)
        return tuple(sorted({DEFAULT_QUEUE, *named}))

    @property
    def runnable(self) -> tuple[str, ...]:
        """The names of the activities that a worker runs: all but the external ones."""
        return tuple(name for name, activity in self.activities.items() if activity.options.external is None)

    @property
    def definitions(self) -> list[Workflow[..., Any]]:
        """All versions of all workflows and flows."""
        return [workflow for versions in self._code.values() for workflow in versions.values()]

    @property
    def versions(self) -> tuple[tuple[str, str], ...]:
        """The versions of the workflows that are written as code, as pairs of name and version (R8)."""
        return tuple((workflow.name, workflow.version) for workflow in self.definitions if not workflow.is_flow)

    def versions_of(self, name: str) -> list[str]:
        """The versions of a workflow, from the lowest to the highest (R5)."""
        return in_order(self._code.get(name, ()))

    def find(self, name: str, version: str | None = None) -> Workflow[..., Any] | None:
        """The code that runs instances of a version; None if it is not registered here.

        Without a version it is the newest one. A flow runs instances of all its versions (`runtime.flow_versions`).
        """
        newest = self.workflows.get(name)
        if version is None or newest is None or newest.is_flow:
            return newest
        return self._code[name].get(version)

    def workflow(self, name: str, version: str | None = None) -> Workflow[..., Any]:
        """As `find`, or an `UnknownWorkflow`."""
        found = self.find(name, version)
        if found is not None:
            return found
        if name in self.workflows:
            known = ", ".join(map(version_text, self.versions_of(name)))
            raise UnknownWorkflow(
                f"workflow {name!r} with {version_text(version or '')} is not registered here; known: {known}"
            )
        known = ", ".join(sorted(self.workflows)) or "none"
        raise UnknownWorkflow(f"no workflow {name!r} is registered here; known: {known}")

    def newest(self, name: str) -> Workflow[..., Any]:
        """The highest version of a workflow (R5), which takes the instances that have not chosen one (R6)."""
        return self.workflow(name)

    def put(self, workflow: Workflow[..., Any]) -> None:
        """Register a workflow in the place of the one with its name and version, if there is one."""
        versions = self._code.setdefault(workflow.name, {})
        versions[workflow.version] = workflow
        self.workflows[workflow.name] = versions[newest_version(versions)]

    def check(self) -> None:
        """Raise if a flow names an activity that is not registered. Called by workers, not where flows are started."""
        for workflow in self.definitions:
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
        """The exception type of that qualified name, if Python, Holdfast or registered code has it."""
        return resolve_builtin(name) or self._errors.get(name)

    def _add_module(self, module: object) -> None:
        if not isinstance(module, ModuleType):
            raise UsageError(f"modules= takes modules, not {module!r}; single ones go into workflows= or activities=")
        self._modules.add(module.__name__)
        values: list[Any] = list(vars(module).values())
        for value in values:
            if isinstance(value, Workflow):
                self._add_workflow(cast("Workflow[..., Any]", value))
            elif isinstance(value, Activity):
                self._add_activity(cast("Activity[..., Any]", value))
            else:
                for method in methods_of(value):
                    self._add_activity(method)

    def _add_bundled_code(self, workflow: Workflow[..., Any]) -> None:
        """Add the activities and workflows that a flow was built from, recursively."""
        for definition in workflow.bundled_code:
            if isinstance(definition, Activity):
                activity = cast("Activity[..., Any]", definition)
                if activity.receiver is not NO_OBJECT:  # the object of a method is registered by itself
                    self._add_activity(activity)
            elif isinstance(definition, Workflow) and self._add_workflow(cast("Workflow[..., Any]", definition)):
                self._add_bundled_code(cast("Workflow[..., Any]", definition))

    def _add_workflow(self, definition: object) -> bool:
        """Register a version. False if it was registered already."""
        if not isinstance(definition, Workflow):
            raise UsageError(_not_marked(definition, "workflow"))
        workflow = cast("Workflow[..., Any]", definition)
        known = self._code.get(workflow.name, {})
        if known.get(workflow.version) is workflow:
            return False
        if workflow.version in known:
            raise DuplicateName(_duplicate(known[workflow.version], workflow))
        for other in known.values():
            if other.is_flow or workflow.is_flow:  # a flow runs the instances of all versions, so it is alone
                raise DuplicateName(_duplicate(other, workflow))
        self.put(workflow)
        self._modules.add(workflow.fn.__module__)
        return True

    def _add_activity_or_methods(self, given: object) -> None:
        methods = () if issubclass(type(given), Activity) else methods_of(given)
        for method in methods:
            self._add_activity(method)
        if not methods:
            self._add_activity(given)

    def _add_activity(self, definition: object) -> None:
        if not isinstance(definition, Activity):
            raise UsageError(_not_marked(definition, "activity"))
        activity = cast("Activity[..., Any]", definition)
        if activity.receiver is NO_OBJECT:
            cls, _, method = activity.fn.__qualname__.rpartition(".")
            raise UsageError(
                f"{cls}.{method} is a method without an object; register an object, activities=[{cls}(...)], or one of "
                f"its methods"
            )
        other = self.activities.setdefault(activity.name, activity)
        if not _is_same(other, activity):
            raise DuplicateName(_duplicate(other, activity))
        self._modules.add(activity.fn.__module__)


def methods_of(value: object) -> tuple[Activity[..., Any], ...]:
    """The activities that are methods of an object, in the order of their names (A11).

    The test uses `type` instead of `isinstance`, as `_add` does.
    """
    found: dict[str, Activity[..., Any]] = {}
    cls = type(value)
    for owner in reversed(cls.__mro__):
        for name, attribute in list(vars(owner).items()):
            if type(attribute) in (Activity, StreamActivity) and attribute.receiver is NO_OBJECT:
                found[name] = attribute
            elif name in found:
                raise UsageError(
                    f"{owner.__qualname__}.{name} overrides an activity and is none; mark it with @hf.activity, too"
                )
    return tuple(found[name].bound_to(value) for name in sorted(found))


def _is_same(one: object, other: object) -> bool:
    """Whether two definitions are one, or one method of one object: each access binds it again."""
    if one is other:
        return True
    if not isinstance(one, Activity) or not isinstance(other, Activity):
        return False
    return one.receiver is not None and one.receiver is other.receiver and one.declaration is other.declaration


def _not_marked(given: object, kind: str) -> str:
    """The error message for `given`, which is no definition."""
    if isinstance(given, Workflow | Activity):
        other = "workflow" if isinstance(given, Workflow) else "activity"
        return f"{cast('Any', given)!r} is marked with @hf.{other}; give it as {PLURALS[other]}=[...]"
    if inspect.isfunction(given):
        return f"{given.__qualname__} is not marked; write @hf.{kind} above it"
    if inspect.ismethod(given):
        return not_a_function(given)
    if (
        kind == "activity"
        and isinstance(given, type)
        and any(isinstance(value, Activity) for base in given.__mro__ for value in vars(base).values())
    ):
        return f"{given.__qualname__} is a class; register an object of it: activities=[{given.__name__}(...)]"
    if kind == "activity" and not callable(given) and not isinstance(given, type) and hasattr(given, "__dict__"):
        return f"{type(given).__qualname__} has no method that is marked with @hf.activity"
    return f"{not_a_function(given)}, and mark it with @hf.{kind}"


def _duplicate(one: Workflow[..., Any] | Activity[..., Any], other: Workflow[..., Any] | Activity[..., Any]) -> str:
    """The error message for two definitions of one name."""
    duplicate = f"two of the name {one.name!r}: {_origin(one)} and {_origin(other)}"
    if all(isinstance(each, Workflow) and each.is_flow for each in (one, other)):
        return f"{duplicate}; give the newer one only: instances of the older one stay with their version"
    if isinstance(one, Workflow) and isinstance(other, Workflow) and not (one.is_flow or other.is_flow):
        return f"{duplicate}, both of {version_text(one.version)}; give one of them another version=... or name=..."
    return f"{duplicate}; give one of them another name=..."


def _origin(one: Workflow[..., Any] | Activity[..., Any]) -> str:
    if isinstance(one, Workflow) and one.is_flow:
        return (
            f"a flow of {f'version {one.version!r}' if one.version else 'no version'} with the hash {one.fingerprint}"
        )
    owner = None if isinstance(one, Workflow) else one.receiver
    return f"in {one.__module__}" if owner is None else f"of an object of {type(owner).__qualname__}"


def _fingerprint(code: CodeType) -> str:
    """A hash of the instructions of a function and of its inner functions, without lines and paths."""
    constants = [_constant(part) for part in code.co_consts]
    return sha256(f"{code.co_code.hex()} {code.co_names} {constants}".encode()).hexdigest()


def _constant(value: object) -> str:
    """A constant of the code as a string that is the same in every process: the items of a set are sorted."""
    if isinstance(value, CodeType):
        return _fingerprint(value)
    if isinstance(value, tuple):
        return f"({', '.join(_constant(part) for part in cast('Iterable[object]', value))})"
    if isinstance(value, frozenset):
        return f"{{{', '.join(sorted(_constant(part) for part in cast('Iterable[object]', value)))}}}"
    return repr(value)
