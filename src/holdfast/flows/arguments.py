"""The arguments that a flow gives an activity, against the parameters of its function.

Only what is sure is told: which names and how many, where the input is a map or a list. Values are known when it runs.
"""

from collections.abc import Collection, Iterator
from inspect import Parameter, Signature
from typing import NamedTuple, cast

from holdfast.core.flow.definition import Template
from holdfast.flows.problems import quoted


class ArgumentMismatch(NamedTuple):
    """Why a call can never succeed. `where` is its place in the node; `unknown` a name that may be misspelt."""

    where: str
    message: str
    unknown: str = ""
    names: Collection[str] = ()


def misfits(activity: str, signature: Signature, given: Template) -> Iterator[ArgumentMismatch]:
    """What does not fit; nothing where that cannot be known."""
    parameters = signature.parameters
    if any(one.kind in {Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD} for one in parameters.values()):
        return
    if isinstance(given, dict):
        filled = set(cast(dict[str, Template], given))
        unfilled = parameters.keys() - filled
        for name in sorted(filled - parameters.keys()):
            yield ArgumentMismatch(
                f"input.{name}", f"{quoted(activity)} has no parameter {quoted(name)}", name, unfilled
            )
    elif isinstance(given, list):
        count = len(cast(list[Template], given))
        positional = [one.name for one in parameters.values() if one.kind is not Parameter.KEYWORD_ONLY]
        filled = set(positional[:count])
        if count > len(positional):
            said = f"{quoted(activity)} takes {len(positional)} arguments by position, and here are {count}"
            yield ArgumentMismatch("input", said)
    else:
        return
    required = [name for name, one in parameters.items() if one.default is Parameter.empty]
    if missing := [name for name in required if name not in filled]:
        yield ArgumentMismatch("input", f"{quoted(activity)} needs {', '.join(missing)}, which the input does not have")
