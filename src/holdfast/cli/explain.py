"""``holdfast explain``: what the digits of a ledger, a collation key or a composite say."""

from dataclasses import replace

import click
from rich.console import Console

from holdfast.cli.explanations import Explanation, explain_composite, explain_ledger
from holdfast.cli.key_names import ActivityNames, find_names, names_of_flow
from holdfast.cli.texts import json_text
from holdfast.core import ledger
from holdfast.core.collation import CollationKey, Composite, decompose
from holdfast.errors import CollationError, LedgerError, UsageError

LONGEST_TEXT = 10_000


def explain(
    digits: str,
    activities: str | None = None,
    flow: str | None = None,
    store: str | None = None,
    as_json: bool = False,
) -> None:
    """Say what the digits of a ledger or a collation key mean.

    The activities of a key have their names if an instance in the store has this key, or if `flow` or `activities`
    says whose key it is.
    """
    explanation = explanation_of(digits, activities, flow, store)
    if as_json:
        click.echo(json_text(explanation.fields))
    else:
        explanation.show(Console(highlight=False))


def explanation_of(
    digits: str, activities: str | None, flow: str | None = None, store: str | None = None
) -> Explanation:
    """Find out which kind of digits these are, and take them apart."""
    text = digits.strip().replace("_", "").replace(" ", "")
    if not (text.isascii() and text.isdigit()):
        raise UsageError(f"{digits!r} is not a row of digits")
    if len(text) > LONGEST_TEXT:
        raise UsageError(f"{len(text)} digits are more than this command explains ({LONGEST_TEXT})")
    if activities is not None and flow is not None:
        raise UsageError("--activities and --flow both say whose key it is; give one of them")
    if activities is not None:
        names = ActivityNames([activity.strip() for activity in activities.split(",")])
        return _explain_named(text, names, "--activities")
    if flow is not None:
        return _explain_named(text, names_of_flow(_composite(text, "--flow"), flow, store), "--flow")
    return _explain_unnamed(text, store)


def _is_ledger(value: int) -> bool:
    try:
        ledger.read(value)
    except LedgerError:
        return False
    return True


def _composite(text: str, option: str) -> Composite:
    try:
        return decompose(text)
    except CollationError as error:
        if _is_ledger(int(text)) and len(text) == ledger.DIGITS:
            raise UsageError(f"{text} is a ledger, not a key: leave out {option}") from error
        raise


def _explain_named(text: str, names: ActivityNames, option: str) -> Explanation:
    composite = _composite(text, option)
    given = composite.digits if composite.children else text
    key = CollationKey.parse(given, names.ids)
    return explain_composite(composite, replace(names, ids=list(key.roster.activities)))


def _explain_unnamed(text: str, store: str | None) -> Explanation:
    """Fifteen digits that are a possible ledger are one; a key of three activities needs their names."""
    no_ledger = f"a ledger has {ledger.DIGITS} digits, not {len(text)}"
    if len(text) == ledger.DIGITS:
        try:
            return explain_ledger(ledger.read(int(text)))
        except LedgerError as error:
            no_ledger = str(error)
    elif len(text) == ledger.DIGITS - 1 and _is_ledger(int(text)):
        raise UsageError(f"if this is a ledger, its first 0 is missing: holdfast explain 0{text}")
    try:
        composite = decompose(text)
        return explain_composite(composite, find_names(composite, store))
    except CollationError as error:
        raise UsageError(f"these digits say nothing.\n  As a ledger: {no_ledger}.\n  As a key: {error}.") from error
