"""Options of the start of a child: ``hf.start(ship, order, id=...)`` and ``ship.with_options(id=...)(order)``."""

from typing import Final, TypedDict

from holdfast.authoring.validation import DeadlineOption, checked_bool, checked_name
from holdfast.core.admission import IdPolicy, IdPolicyOption
from holdfast.core.checks import parse_enum
from holdfast.core.children import ParentClose, ParentCloseOption
from holdfast.errors import InvalidOption
from holdfast.replay.children import ChildTies


class ChildOptions(TypedDict, total=False):
    """The options that the start of a child can give."""

    id: str | None
    policy: IdPolicyOption
    deadline: DeadlineOption
    parent_close: ParentCloseOption | None
    detached: bool


KNOWN: Final = tuple(ChildOptions.__annotations__)


def checked_child_options(called: str, given: ChildOptions) -> ChildOptions:
    """The options, if they are known; else an `InvalidOption`."""
    for name in given:
        if name not in KNOWN:
            raise InvalidOption(f"{called} has no option {name!r}; the options are {', '.join(KNOWN)}")
    return given


def ties_of(options: ChildOptions) -> ChildTies:
    """How the child depends on its parent. A `detached` child is abandoned by default when its parent ends."""
    detached = checked_bool(options.get("detached", False), "detached")
    close = options.get("parent_close")
    if close is not None:
        parent_close = parse_enum(ParentClose, close, "policy for the end of the parent")
    else:
        parent_close = ParentClose.ABANDON if detached else ParentClose.TERMINATE
    chosen = options.get("id")
    policy = parse_enum(IdPolicy, options.get("policy", IdPolicy.IDEMPOTENT), "policy for ids")
    if chosen is None and policy is not IdPolicy.IDEMPOTENT:
        raise InvalidOption(f"policy={policy.value!r} is for a child with a chosen id; give id=, too")
    return ChildTies(parent_close, not detached, "" if chosen is None else checked_name(chosen, "an instance"), policy)


def deadline_of(options: ChildOptions) -> DeadlineOption:
    """The given deadline; `...` if none is given."""
    return options.get("deadline", ...)
