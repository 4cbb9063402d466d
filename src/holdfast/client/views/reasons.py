"""Reasons why instances are blocked or do not replay: equal ones are one group, and each kind has a remedy (R17)."""

import re
from typing import Final

from holdfast.core.leases import TOOK_DOWN_ITS_OWNERS
from holdfast.errors import (
    AnnotationError,
    ArgumentError,
    FlowError,
    ForbiddenInWorkflow,
    HistoryMismatch,
    MalformedPayload,
    NotInWorkflow,
    PayloadError,
    PayloadTooLarge,
    TurnTooLong,
    UndeclaredError,
)

LONGEST_KEY: Final = 1_000
_VARYING: Final = (
    (re.compile(r"\b[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}\b", re.IGNORECASE), "..."),
    (re.compile(r"\b0x[0-9a-f]+\b", re.IGNORECASE), "..."),
    (re.compile(r"\b(?=[0-9a-z]*[0-9])[0-9a-z]{16,}\b", re.IGNORECASE), "..."),
    (re.compile(r"\b\d{4,}\b"), "..."),
)
"""What differs between the reasons of instances with one cause: UUIDs, addresses, long ids and long numbers."""
_RAISED: Final = re.compile(r"^(UndeclaredError: .*? raised [\w.]+)")
_FRAME: Final = re.compile(r'^\s*(File ".*", line \d+, in .*)$')


def reason_key(reason: str, instance_id: str) -> str:
    """The part of a reason that instances with the same cause have in common.

    Of a reason with a traceback that is the type of the exception and the line that raised it: its message may have
    values. Of any other reason it is the first line without the id of the instance and other values that vary.
    """
    first, _, rest = reason.partition("\n")
    frames = [found[1] for line in rest.split("\n") if (found := _FRAME.match(line))]
    raised = _RAISED.match(first)
    if raised and frames:
        return f"{raised[1]} at {frames[-1]}"[:LONGEST_KEY]
    key = first.replace(repr(instance_id), "'...'").replace(f"'{instance_id}/", "'.../")
    for pattern, replacement in _VARYING:
        key = pattern.sub(replacement, key)
    return key[:LONGEST_KEY]


_MISMATCH: Final = (
    "deploy code that repeats the recorded steps: the former code, or the change behind hf.patched(); instances "
    "continue by themselves"
)
_CODE: Final = "mend the code and deploy it; instances continue by themselves"
_TYPES: Final = (
    "change the type so that stored values fit, such as a default for a new field, and deploy it; instances continue "
    "by themselves"
)
_REMEDIES: Final[dict[type[Exception], str]] = {
    HistoryMismatch: _MISMATCH,
    UndeclaredError: "mend the code and deploy it, or declare the exception in fails_with=; instances continue by "
    "themselves",
    TurnTooLong: _CODE,
    ForbiddenInWorkflow: _CODE,
    NotInWorkflow: _CODE,
    PayloadError: _TYPES,
    ArgumentError: _TYPES,
    AnnotationError: _TYPES,
    MalformedPayload: _TYPES,
    PayloadTooLarge: "raise --payload-limit of the workers, then holdfast resume ID",
    FlowError: "deploy the flow with the activities that its version needs; instances continue by themselves",
}
_BY_NAME: Final = {kind.__name__: remedy for kind, remedy in _REMEDIES.items()}
_OTHER: Final = "remove the cause, then holdfast resume ID; or holdfast terminate ID"


def remedy(reason: str) -> str:
    """What to do about instances that are blocked for this reason."""
    if reason.startswith(TOOK_DOWN_ITS_OWNERS):
        return "mend the code that ends its process and deploy it: another build tries once; or holdfast terminate ID"
    return _BY_NAME.get(reason.partition(":")[0], _OTHER)
