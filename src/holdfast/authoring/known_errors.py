"""The exception types that registered code can name, so that ``except Declined`` works across the store.

Code can name what its module defines or has imported: a class, or a module that has it. Nothing is imported here, and
no name comes from data. The list is made once, when an engine is made: whether a type is known does not depend on what
some body imports later, and so every replay raises the same.
"""

from collections.abc import Iterable
from types import ModuleType
from typing import Any, cast

from holdfast.payloads.failures import qualified_name

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
        _add_module(cast(ModuleType, value), known, seen)
    elif issubclass(kind, type):
        _add_class(cast(type[Any], value), known)


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
    inside: dict[str, Any] = dict(vars(cast(type, cls)))
    for inner in inside.values():
        if issubclass(type(inner), type) and inner.__qualname__ == f"{cls.__qualname__}.{inner.__name__}":
            _add_class(inner, known)


def _names_of(module: ModuleType) -> dict[str, Any]:
    """What a module has, without asking it: one that loads itself when it is first asked is left as it is."""
    return dict(object.__getattribute__(module, "__dict__"))
