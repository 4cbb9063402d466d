"""Options per call: ``charge.with_options(queue="gpu", retry=hf.Retry(attempts=1))(order)`` (A15).

The options of a call are those of its activity, changed by the given ones, checked and encoded once. An option that
belongs to the code of the activity (its name, its function of `prepare=`, whether it has a body here) cannot vary by
call.
"""

from collections.abc import Callable
from types import MappingProxyType
from typing import Any, Final, Literal, TypedDict

from msgspec.structs import replace

from holdfast.authoring.retry import Retry, checked_retry
from holdfast.authoring.validation import (
    Duration,
    checked_bool,
    checked_integer,
    checked_name,
    checked_timeout_ms,
)
from holdfast.core.activity_options import (
    DEFAULT_CLAIM_TIMEOUT_MS,
    ActivityOptions,
    ExternalOptions,
    OnCancel,
    OnCancelOption,
    StreamOptions,
)
from holdfast.core.checks import parse_enum
from holdfast.core.ledger import MAX_LEG1_ENTRIES
from holdfast.errors import InvalidOption

OnExhausted = Literal["fail", "pause"]
"""What happens when the retries of an activity are used up."""


class CallOptions(TypedDict, total=False):
    """The options that a call can give. An omitted one is that of the activity."""

    queue: str
    retry: Retry | None
    start_to_close: Duration | None
    schedule_to_start: Duration | None
    schedule_to_close: Duration | None
    heartbeat: Duration | None
    process: bool
    rerun_after_loss: bool
    max_losses: int
    resumable: bool
    claim_timeout: Duration | None
    max_claims: int
    on_cancel: OnCancelOption
    on_exhausted: OnExhausted


_FIXED: Final = MappingProxyType(
    {
        "name": "a call runs the activity of this name",
        "prepare": "the worker that runs the attempt reads it from its own code",
        "external": "it says whether the function has a body",
    }
)
"""Options of the declaration that no call can change, each with the reason."""


def checked_on_cancel(mode: object) -> OnCancel:
    """The mode of `on_cancel=`."""
    return parse_enum(OnCancel, mode, "mode of on_cancel")  # type: ignore[arg-type]  # refuses other types


def checked_on_exhausted(chosen: object) -> bool:
    """Whether the instance is paused when the retries are used up (R26)."""
    if chosen not in ("fail", "pause"):
        raise InvalidOption(f"on_exhausted must be 'fail' or 'pause', not {chosen!r}")
    return chosen == "pause"


def _timeout(name: str) -> Callable[[Any], int | None]:
    return lambda value: checked_timeout_ms(value, name)


_CHECKS: Final[MappingProxyType[str, tuple[str, Callable[[Any], Any]]]] = MappingProxyType(
    {
        "queue": ("queue", lambda value: checked_name(value, "a queue")),
        "retry": ("retry", lambda value: (checked_retry(value) or Retry()).policy()),
        "start_to_close": ("start_to_close_ms", _timeout("start_to_close")),
        "schedule_to_start": ("schedule_to_start_ms", _timeout("schedule_to_start")),
        "schedule_to_close": ("schedule_to_close_ms", _timeout("schedule_to_close")),
        "heartbeat": ("heartbeat_ms", _timeout("heartbeat")),
        "process": ("process", lambda value: checked_bool(value, "process")),
        "rerun_after_loss": ("rerun_after_loss", lambda value: checked_bool(value, "rerun_after_loss")),
        "max_losses": ("max_losses", lambda value: checked_integer(value, "max_losses", least=0)),
        "max_claims": (
            "max_claims",
            lambda value: checked_integer(value, "max_claims", least=1, most=MAX_LEG1_ENTRIES),
        ),
        "on_cancel": ("on_cancel", checked_on_cancel),
        "on_exhausted": ("pauses", checked_on_exhausted),
    }
)
"""The options that are a field of the stored options: the field, and the check of a value."""


def changed_options(activity: str, options: ActivityOptions, given: CallOptions) -> ActivityOptions:
    """The options of a call. Those that do not fit the activity are refused by its own checks."""
    changes: dict[str, Any] = {}
    for name, value in given.items():
        if name in _CHECKS:
            field, check = _CHECKS[name]
            changes[field] = check(value)
        elif name == "resumable":
            changes["stream"] = _resumable(activity, options, value)
        elif name == "claim_timeout":
            changes["external"] = _claim_timeout(activity, options, value)
        elif name in _FIXED:
            raise InvalidOption(
                f"{activity}.with_options: {name}= belongs to the declaration: {_FIXED[name]}. Declare another "
                f"activity with the other {name}"
            )
        else:
            known = ", ".join(CallOptions.__annotations__)
            raise InvalidOption(f"{activity}.with_options has no option {name!r}; the options are {known}")
    return replace(options, **changes)


def _resumable(activity: str, options: ActivityOptions, value: object) -> StreamOptions | None:
    resumable = checked_bool(value, "resumable")
    if options.stream is None:
        if resumable:
            raise InvalidOption(f"{activity}: resumable=True is for generators, which yield values")
        return None
    return StreamOptions(resumable=resumable)


def _claim_timeout(activity: str, options: ActivityOptions, value: Any) -> ExternalOptions | None:
    timeout_ms = checked_timeout_ms(value, "claim_timeout", omitted="300 s")
    if options.external is None:
        if timeout_ms is not None:
            raise InvalidOption(
                f"{activity}: claim_timeout is for external activities: the claim of a worker lasts as long as its "
                "lease"
            )
        return None
    return ExternalOptions(timeout_ms or DEFAULT_CLAIM_TIMEOUT_MS)
