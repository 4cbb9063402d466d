"""Calls of workflow code that answer the same in every replay: ``hf.now``, ``random``, ``patched``, ``info``, ..."""

import datetime as dt
from collections.abc import Callable
from random import Random  # noqa: TID251 - only its type; the numbers come from the history's seed
from typing import Any, Final, NamedTuple, NoReturn, TypeVar
from uuid import UUID

from holdfast.authoring.validation import checked_name
from holdfast.core.versions import NEWEST
from holdfast.errors import InvalidOption, NotInWorkflow
from holdfast.payloads.encoding import decode, encode
from holdfast.replay.run import WorkflowRun, current_run, observed_run

T = TypeVar("T")
UUID_BITS = 128
EPOCH: Final = dt.datetime.fromtimestamp(0, dt.UTC)


class WorkflowInfo(NamedTuple):
    """The running execution."""

    id: str
    workflow: str
    execution: int
    history_length: int = 0
    """Events in the history of this execution so far, without those of `hf.patched`."""
    should_continue: bool = False
    """The history has become long (`@hf.workflow(continue_after=...)`): a good moment for `hf.continue_as_new`."""
    parent: str | None = None
    """The id of the parent instance, if there is one."""
    version: str = ""
    """The version of the workflow on which the instance runs; empty if the workflow names none."""
    attempt: int = 1
    """With a retry policy: how many executions have had this input, in a row, with this one."""
    started_at: dt.datetime = EPOCH
    """When this execution began."""
    root: str | None = None
    """The id of the topmost ancestor, its own without a parent; None if an older release did not record it."""
    is_replaying: bool = False
    """The code is being rebuilt from its history. What differs there must not lead to another step."""


def now() -> dt.datetime:
    """The time in UTC: that of the message being handled, the same in every replay."""
    return dt.datetime.fromtimestamp(readable_run("hf.now").now_ms / 1000, dt.UTC)


def random() -> Random:
    """A generator of random numbers that are the same in every replay: ``hf.random().choice(boxes)``."""
    return current("hf.random").random


def uuid4() -> UUID:
    """A random UUID, the same in every replay."""
    return UUID(int=current("hf.uuid4").random.getrandbits(UUID_BITS), version=4)


def side_effect(compute: Callable[[], T], annotation: Any = Any) -> T:
    """Compute a value and record it: every replay gets the recorded one. For quick things without I/O.

    `compute` is called again if the turn is not committed, as after a crash; only a recorded value counts. An effect
    that must not happen twice belongs into an activity.
    """
    run = current("hf.side_effect")
    value: T = run.side_effect(
        compute,
        lambda result: encode(result, annotation, what="the side effect"),
        lambda data: decode(data, annotation),
    )
    return value


def patched(name: str) -> bool:
    """Whether this execution takes a changed part of the code: ``if hf.patched("check-stock"): await check_stock()``.

    The first call of an execution with a name decides for all its calls. It is true unless the execution had passed
    that point before the change was deployed, and a true answer is recorded in the history. Every change has a name of
    its own. `holdfast patches` tells when the call, and the branch for false, can be removed (R14, R15).
    """
    return current("hf.patched").patched(checked_name(name, "a patch"))


def info() -> WorkflowInfo:
    """The running execution: its instance, workflow, version, number, start, length of the history, parent, root."""
    run = readable_run("hf.info")
    identity = run.identity
    return WorkflowInfo(
        identity.instance_id,
        identity.workflow,
        identity.execution,
        *run.length,
        run.parent or None,
        run.version,
        run.attempt,
        dt.datetime.fromtimestamp(run.began_at_ms / 1000, dt.UTC),
        _root_of(run),
        run.context.replaying,
    )


def _root_of(run: WorkflowRun) -> str | None:
    if run.depth == 0:
        return run.identity.instance_id
    return run.root or (run.parent if run.depth == 1 else None)


def continue_as_new(*args: Any, version: str | None = None, **kwargs: Any) -> NoReturn:
    """End this execution and begin the next one of the same instance, with these arguments and an empty history (G4).

    Only the main task may call it, and the call never returns. Activities and timers that are still open are cancelled.
    The instance stays on its version; with `version="newest"` it moves to the highest one of the worker that runs the
    next execution. An argument of the workflow that is called `version` is given by position.
    """
    if version not in (None, NEWEST):
        raise InvalidOption(
            f"hf.continue_as_new: version is {NEWEST!r} or left out, not {version!r}; "
            "an argument of the workflow that is called version is given by position"
        )
    current("hf.continue_as_new").continue_as_new(args, kwargs, on_newest=version == NEWEST)


def current(called: str) -> WorkflowRun:
    """The run of the calling workflow code."""
    return _required(current_run(), called)


def readable_run(called: str) -> WorkflowRun:
    """The run of the calling workflow code, which may be read-only: a query or a validator."""
    run = _required(observed_run(), called)
    run.context.loop.check_evicted()
    return run


def _required(run: WorkflowRun | None, called: str) -> WorkflowRun:
    if run is None:
        raise NotInWorkflow(f"{called} works in workflow code only; here the ordinary Python tools do")
    return run
