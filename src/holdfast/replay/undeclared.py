"""Which exceptions fail a workflow with ``on_error="block"``: those that it declares. Any other one is a bug (R18)."""

from collections.abc import Iterator
from typing import Any, Final, cast

from holdfast.errors import RemoteError, UndeclaredError
from holdfast.payloads.failures import RecordedFailure, describe_error, failure_of, qualified_name
from holdfast.payloads.limits import shorten

LONGEST_REASON: Final = 6_000
MOST_CAUSES: Final = 5
ErrorTypes = tuple[type[Exception], ...]


def is_declared(error: BaseException, declared: ErrorTypes) -> bool:
    """Whether the workflow declares this exception; of a group, each of its members.

    An exception of an activity or a child whose type is not known here is compared by name, with its base classes.
    """
    if isinstance(error, declared):
        return True
    if isinstance(error, BaseExceptionGroup):
        group = cast("BaseExceptionGroup[BaseException]", error)
        return all(is_declared(member, declared) for member in group.exceptions)
    if isinstance(error, RemoteError):
        names = {qualified_name(each) for each in declared}
        return not names.isdisjoint((error.type_name, *error.bases))
    return False


def undeclared(workflow: str, error: BaseException) -> UndeclaredError:
    """The reason for which the instance is blocked: the exception, its traceback and its causes."""
    message = (
        f"{workflow} raised {_line(describe_error(error))}, which is no declared failure (hf.Failure or a type in "
        "fails_with=)"
    )
    return UndeclaredError(shorten("\n".join((message, *_details(failure_of(error)))), LONGEST_REASON))


def _details(failure: RecordedFailure) -> Iterator[str]:
    current: RecordedFailure | None = failure
    for position in range(MOST_CAUSES):
        if current is None:
            return
        if position:
            yield f"caused by {current.type.removeprefix('builtins.')}: {_line(current.message)}"
        if current.traceback:
            yield current.traceback
        yield from current.notes
        for member in current.members:
            yield f"with {member.type.removeprefix('builtins.')}: {_line(member.message)}"
            if member.traceback:
                yield member.traceback
        current = current.cause


def _line(text: Any) -> str:
    return " ".join(str(text).split())
