"""Replaces the bodies of activities and workflows in an environment, and records the calls of activities."""

import copy
import inspect
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from functools import wraps
from typing import Any

import msgspec

from holdfast.authoring.activity import Activity, AnyActivity
from holdfast.authoring.registry import Registry
from holdfast.authoring.workflow import AnyWorkflow, Workflow
from holdfast.core.activity_options import encode_options
from holdfast.errors import InvalidOption, UsageError

Body = Callable[..., Any]
Replaceable = AnyActivity | AnyWorkflow
_BY_POSITION = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


class Replacements:
    """The replacements of one environment. They change its registry, not the activities and workflows."""

    def __init__(self, registry: Registry, replace: Mapping[Replaceable, Body | BaseException]) -> None:
        self._registry = registry
        self._real = dict(registry.activities)
        self.workflows = registry.definitions
        """The original workflows."""
        self._calls: dict[str, list[dict[str, Any]]] = {name: [] for name in self._real}
        self.made: dict[Replaceable, Body | BaseException] = {}
        for activity in self._real.values():
            if not activity.process:
                registry.activities[activity.name] = self._recording(activity, activity.fn)
        for what, body in replace.items():
            self.replace(what, body)

    def replace(self, what: Replaceable, body: Body | BaseException) -> None:
        """Run `body` instead from now on, or raise it if it is an exception."""
        known = self._known_workflow(what) if isinstance(what, Workflow) else self._known(what)
        self.made[known] = body
        function = _raising(body, known) if isinstance(body, BaseException) else body
        if isinstance(function, Activity | Workflow):
            function = function.fn
        if not callable(function):
            raise InvalidOption(f"{known.name} is replaced by a function or an exception, not by {function!r}")
        _check(known, function)
        if isinstance(known, Workflow):
            self._registry.put(_replaced(known, function))
        else:
            self._registry.activities[known.name] = self._recording(known, function)

    @property
    def real(self) -> list[Activity[..., Any]]:
        """The original activities."""
        return list(self._real.values())

    def restore(self, what: Replaceable) -> None:
        """Run the original body again from now on."""
        if isinstance(what, Workflow):
            workflow = self._known_workflow(what)
            self.made.pop(workflow, None)
            self._registry.put(workflow)
            return
        known = self._known(what)
        self.made.pop(known, None)
        self._registry.activities[known.name] = known if known.process else self._recording(known, known.fn)

    def calls(self, activity: AnyActivity) -> list[dict[str, Any]]:
        """The arguments of each run of the activity so far, by name."""
        known = self._known(activity)
        if known.process and known not in self.made:
            raise UsageError(
                f"{known.name} runs in another process, where its calls are not recorded; replace it to record them"
            )
        return [dict(call) for call in self._calls[known.name]]

    def _known(self, activity: object) -> Activity[..., Any]:
        for known in self._real.values():
            if known is activity or (isinstance(activity, Activity) and known.declaration is activity.declaration):
                return known
        if not isinstance(activity, Activity):
            raise UsageError(f"{activity!r} is not marked with @hf.activity")
        names = ", ".join(sorted(self._real)) or "none"
        raise UsageError(f"the environment does not have {activity!r}; known: {names}")

    def _known_workflow(self, workflow: Workflow[..., Any]) -> Workflow[..., Any]:
        if not any(known is workflow for known in self.workflows):
            names = ", ".join(sorted(known.name for known in self.workflows)) or "none"
            raise UsageError(f"the environment does not have {workflow!r}; known: {names}")
        return workflow

    def _recording(self, activity: Activity[..., Any], body: Body) -> Activity[..., Any]:
        signature = inspect.signature(activity.fn)
        calls = self._calls[activity.name]

        def record(args: tuple[Any, ...], kwargs: dict[str, Any]) -> inspect.BoundArguments:
            bound = signature.bind(*args, **kwargs)
            bound.apply_defaults()  # the replacement may lack the defaults of the activity
            calls.append(dict(bound.arguments))
            return bound

        @wraps(body)
        async def run_async(*args: Any, **kwargs: Any) -> Any:
            bound = record(args, kwargs)
            return await body(*bound.args, **bound.kwargs)

        @wraps(body)
        def run_in_thread(*args: Any, **kwargs: Any) -> Any:
            bound = record(args, kwargs)
            return body(*bound.args, **bound.kwargs)

        @wraps(body)
        def iterate(*args: Any, **kwargs: Any) -> Iterator[Any]:
            bound = record(args, kwargs)
            yield from body(*bound.args, **bound.kwargs)

        is_coroutine = inspect.iscoroutinefunction(body)
        is_stream = inspect.isasyncgenfunction(body)
        stand_in = copy.copy(activity)
        stand_in.signature = activity.signature  # arguments and results are encoded by the original types
        stand_in.is_async = is_coroutine or is_stream
        if is_coroutine:
            stand_in.fn = run_async
        else:
            stand_in.fn = iterate if activity.yields and not is_stream else run_in_thread
        stand_in.process = False
        stand_in.is_stand_in = True
        if body is not activity.fn:
            stand_in.prepare = None  # another body needs no preparation
            if activity.options.external is not None:  # this worker runs it, and no executor sends its heartbeats
                stand_in.options = msgspec.structs.replace(activity.options, external=None, heartbeat_ms=None)
                stand_in.encoded_options = encode_options(stand_in.options)
        return stand_in


def _replaced(workflow: Workflow[..., Any], body: Body) -> Workflow[..., Any]:
    """A copy of a workflow, or of a flow, that runs `body` as its workflow code."""

    @wraps(body)
    async def run_plain(*args: Any, **kwargs: Any) -> Any:
        return body(*args, **kwargs)

    stand_in = copy.copy(workflow)
    stand_in.signature = workflow.signature  # arguments and results are encoded by the original types
    stand_in.fn = body if inspect.iscoroutinefunction(body) else run_plain
    stand_in.is_flow = False
    return stand_in


def _raising(error: BaseException, known: Replaceable) -> Body:
    async def fail(*args: Any, **kwargs: Any) -> Any:
        del args, kwargs
        raise error

    async def fail_at_first(*args: Any, **kwargs: Any) -> AsyncIterator[Any]:
        yield await fail(*args, **kwargs)

    return fail_at_first if _yields(known) else fail


def _yields(known: Replaceable) -> bool:
    return isinstance(known, Activity) and known.yields


def _check(known: Replaceable, body: Body) -> None:
    """Raise `InvalidOption` if the body cannot take the calls of the original, or only one of the two yields."""
    if _yields(known) and inspect.iscoroutinefunction(body):
        raise InvalidOption(f"{known.name} yields values; replace it by a generator, or by a `def` that returns a list")
    if not _yields(known) and (inspect.isasyncgenfunction(body) or inspect.isgeneratorfunction(body)):
        raise InvalidOption(f"{known.name} returns one value; its replacement must not yield")
    parameters = list(inspect.signature(known.fn).parameters.values())
    is_flow = isinstance(known, Workflow) and known.is_flow
    args = [None] if is_flow else [None for each in parameters if each.kind in _BY_POSITION]
    kwargs = {each.name: None for each in parameters if each.kind is inspect.Parameter.KEYWORD_ONLY}
    try:
        inspect.signature(body).bind(*args, **kwargs)
    except (TypeError, ValueError) as error:
        raise InvalidOption(f"the replacement of {known.name} does not take its arguments: {error}") from error
