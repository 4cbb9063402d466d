"""``prepare=`` of an activity: the function that sets an attempt up before its body begins.

The function is called with the arguments of the activity, by position or by name as the body is. The checks here run
where the activity is declared, so that a function that cannot take them is refused before anything runs.
"""

import inspect
from collections.abc import Callable
from typing import Any

from holdfast.authoring.definition import Definition, not_a_function
from holdfast.errors import InvalidOption

_BY_POSITION = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def checked_prepare(prepare: object, function: Callable[..., Any], *, process: bool) -> Callable[..., Any] | None:
    """The function, or `InvalidOption` if it cannot prepare attempts of `function`."""
    if prepare is None:
        return None
    what = f"{function.__qualname__}: prepare="
    if isinstance(prepare, Definition):
        raise InvalidOption(f"{what} takes a plain function, and {prepare.name} is marked; pass {prepare.name}.fn")
    if not (inspect.isfunction(prepare) or inspect.ismethod(prepare)):
        raise InvalidOption(f"{what} takes a function: {not_a_function(prepare)}")
    if inspect.isgeneratorfunction(prepare) or inspect.isasyncgenfunction(prepare):
        raise InvalidOption(f"{what} takes a function that returns a value, and {prepare.__qualname__} yields")
    if process:
        raise InvalidOption(
            f"{what} is for bodies of the worker's own process, whose value never leaves it; with process=True prepare "
            f"in the body itself"
        )
    _check_parameters(prepare, function, what)
    return prepare


def _check_parameters(prepare: Callable[..., Any], function: Callable[..., Any], what: str) -> None:
    """Raise unless `prepare` takes every call that `function` takes, and means the same by each argument."""
    parameters = list(inspect.signature(function).parameters.values())
    required = [each for each in parameters if each.default is inspect.Parameter.empty]
    taken = inspect.signature(prepare)
    try:
        for given in (parameters, required):
            by_position = [each.name for each in given if each.kind in _BY_POSITION]
            by_name = {each.name: each.name for each in given if each.kind is inspect.Parameter.KEYWORD_ONLY}
            _check_names(taken.bind(*by_position, **by_name))
            only = [each.name for each in given if each.kind is inspect.Parameter.POSITIONAL_ONLY]
            taken.bind(*only, **{each.name: each.name for each in given if each.name not in only})
    except TypeError as error:
        raise InvalidOption(
            f"{what} is called with the arguments of the activity, and {prepare.__qualname__}{taken} does not take "
            f"those of {function.__qualname__}{inspect.signature(function)}: {error}"
        ) from error


def _check_names(bound: inspect.BoundArguments) -> None:
    """Each argument is its own name here: a parameter of that name must have received it."""
    for name, value in bound.arguments.items():
        if isinstance(value, str) and value != name and value in bound.signature.parameters:
            raise TypeError(f"parameter {name!r} would receive the argument {value!r}")
