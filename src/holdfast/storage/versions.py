"""How stores hold the version of an instance, and the keys by which workers claim (R6, R8).

An instance without a chosen version has the text `NOT_CHOSEN` in its column, which no version may have, and None in
records. So a claim looks up every key by equality in one index of both databases, and "not chosen" is not "".
"""

import json
from collections.abc import Sequence
from typing import Final

from holdfast.core.versions import NO_VERSION, in_order

NOT_CHOSEN: Final = "-"
"""The version of an instance whose first turn is yet to choose one, as it is stored."""
CodeVersion = tuple[str, str]
"""A workflow that is written as code, and one of its versions."""


def stored_version(version: str | None) -> str:
    """The text in the column. None: not chosen."""
    return NOT_CHOSEN if version is None else version


def read_version(stored: str) -> str | None:
    """The version in the column; None if it is not chosen yet."""
    return None if stored == NOT_CHOSEN else stored


def encode_versions(versions: Sequence[CodeVersion]) -> str:
    """The versions of each workflow, as a worker registers them: a JSON object."""
    names: dict[str, list[str]] = {}
    for workflow, version in versions:
        names.setdefault(workflow, []).append(version)
    return json.dumps({workflow: in_order(names[workflow]) for workflow in sorted(names)})


def claim_keys(workflows: Sequence[str], versions: Sequence[CodeVersion]) -> str:
    """The keys of the instances that a worker may run, as statements take them: a JSON list of pairs.

    The versions of a flow are those that the table `flows` has, for which a pair with null stands. An instance that an
    earlier release started by the name of a flow has no version.
    """
    code = {workflow for workflow, _ in versions}
    keys: list[tuple[str, str | None]] = [*versions]
    for workflow in workflows:
        keys.append((workflow, NOT_CHOSEN))
        if workflow not in code:
            keys += [(workflow, NO_VERSION), (workflow, None)]
    return json.dumps(keys)
