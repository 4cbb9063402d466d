"""``--input``: JSON from outside, checked before anything else looks, then read as the arguments of a workflow.

An object has the arguments by name, an array by position. For a workflow with one parameter the JSON may also be that
one argument itself, if it cannot be read as arguments.
"""

import inspect
from typing import Any, Final

import msgspec

from holdfast.authoring.workflow import BoundWorkflow, Workflow
from holdfast.errors import ArgumentError, PayloadError, UsageError
from holdfast.payloads.limits import PAYLOAD_LIMIT_BYTES
from holdfast.payloads.scan import check_untrusted
from holdfast.payloads.signature import LONGEST_NAME

NO_OBJECT: Final = "got `object` - at `$`"
"""The one argument takes no object at all: an object without its name has the name misspelled."""


def bind_input(workflow: Workflow[..., Any], text: str | None) -> BoundWorkflow[Any]:
    """The workflow with its arguments; what does not fit its signature is an `ArgumentError`."""
    if text is None:
        try:
            return BoundWorkflow(workflow, workflow.signature.normalise(b"{}"))
        except ArgumentError as error:
            raise ArgumentError(f"{error} with --input") from error
    return BoundWorkflow(workflow, _normalised(workflow, checked_json(text)))


def checked_json(text: str) -> bytes:
    """JSON that somebody typed, checked as all that comes from outside is."""
    try:
        data = text.encode()
    except UnicodeEncodeError as error:
        raise UsageError("the input is not UTF-8") from error
    try:
        check_untrusted(data, max_bytes=PAYLOAD_LIMIT_BYTES)
    except PayloadError as error:
        if text.isidentifier():
            raise UsageError(
                f"{text[:LONGEST_NAME]} is no JSON; a text has quotes: '\"{text[:LONGEST_NAME]}\"'"
            ) from error
        raise
    return data


def _normalised(workflow: Workflow[..., Any], data: bytes) -> bytes:
    parameters = list(inspect.signature(workflow.fn).parameters)
    if len(parameters) != 1:
        return workflow.signature.normalise(data)
    value: Any = msgspec.json.decode(data)
    is_call = parameters[0] in value if data.lstrip()[:1] == b"{" else data.lstrip()[:1] == b"[" and len(value) == 1
    as_call, as_value = data, b"[%b]" % data
    first, second = (as_call, as_value) if is_call else (as_value, as_call)
    try:
        return workflow.signature.normalise(first)
    except ArgumentError as error:
        try:
            return workflow.signature.normalise(second)
        except ArgumentError as other:
            raise (other if NO_OBJECT in str(error) else error) from None
