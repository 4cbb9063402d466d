"""What a flow may name, taken from modules: activities with their parameters, flows and workflows."""

from collections.abc import Iterable, Mapping
from inspect import Signature, signature
from types import ModuleType
from typing import Any, cast

from holdfast.authoring.activity import Activity, AnyActivity
from holdfast.authoring.workflow import Workflow
from holdfast.flows.checking import KnownNames


def known_in(modules: Iterable[ModuleType], activities: Iterable[AnyActivity] = ()) -> KnownNames:
    """The activities that a flow may run if it has these. Flows and workflows may come from anywhere."""
    found = [cast(Activity[..., Any], one) for one in activities]
    found += [cast(Activity[..., Any], value) for value in _values(modules) if isinstance(value, Activity)]
    names = frozenset(name for one in found for name in _names_of(one))
    return KnownNames(activities=names, signatures=_signatures(found))


def workflows_in(modules: Iterable[ModuleType]) -> frozenset[str]:
    """The names of the flows and workflows in modules."""
    workflows = (cast(Workflow[..., Any], value) for value in _values(modules) if isinstance(value, Workflow))
    return frozenset(one.name for one in workflows)


def _values(modules: Iterable[ModuleType]) -> list[Any]:
    return [value for module in modules for value in vars(module).values()]


def _names_of(activity: Activity[..., Any]) -> Iterable[str]:
    """The names by which flows may call an activity: its own, and its function with any part of the module."""
    yield activity.name
    parts = f"{activity.__module__}.{activity.__name__}".split(".")
    for place in range(len(parts)):
        yield ".".join(parts[place:])


def _signatures(activities: Iterable[Activity[..., Any]]) -> Mapping[str, Signature]:
    """The parameters of each name that means one activity. Its own name goes before those of functions."""
    by_name: dict[str, dict[int, Activity[..., Any]]] = {}
    for one in activities:
        for name in _names_of(one):
            by_name.setdefault(name, {})[id(one)] = one
    found: dict[str, Signature] = {}
    for name, several in by_name.items():
        own = [one for one in several.values() if one.name == name] or list(several.values())
        if len(own) == 1:
            found[name] = signature(own[0].fn)
    return found
