"""``holdfast explain``: what the digits of a ledger, a collation key or a composite say."""

import json
from typing import Annotated

import typer
from rich.console import Console

from holdfast.cli.explanations import Explanation, explain_composite, explain_ledger
from holdfast.core import ledger
from holdfast.core.collation import CollationKey, decompose
from holdfast.errors import CollationError, LedgerError, UsageError

LONGEST_TEXT = 10_000


def explain(
    digits: Annotated[str, typer.Argument(help="A ledger, a collation key, or a composite of keys.", metavar="DIGITS")],
    activities: Annotated[
        str | None,
        typer.Option("--activities", "-a", help="The flow's activity ids, with commas between: DIGITS is its key."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Say what the digits of a ledger or a collation key mean.

    \b
    holdfast explain 888000002000002
    holdfast explain 366663000000000 --activities ate,brown,fox,jumped,quick,slept
    holdfast explain 36636146636626
    """
    explanation = explanation_of(digits, activities)
    if as_json:
        typer.echo(json.dumps(explanation.fields, indent=2, ensure_ascii=False))
    else:
        explanation.show(Console(highlight=False))


def explanation_of(digits: str, activities: str | None) -> Explanation:
    """Find out which kind of digits these are, and take them apart."""
    text = digits.strip().replace("_", "").replace(" ", "")
    if not (text.isascii() and text.isdigit()):
        raise UsageError(f"{digits!r} is not a row of digits")
    if len(text) > LONGEST_TEXT:
        raise UsageError(f"{len(text)} digits are more than this command explains ({LONGEST_TEXT})")
    if activities is not None:
        return _explain_named(text, [activity.strip() for activity in activities.split(",")])
    return _explain_unnamed(text)


def _is_ledger(value: int) -> bool:
    try:
        ledger.read(value)
    except LedgerError:
        return False
    return True


def _explain_named(text: str, ids: list[str]) -> Explanation:
    try:
        composite = decompose(text)
    except CollationError as error:
        if _is_ledger(int(text)) and len(text) == ledger.DIGITS:
            raise UsageError(f"{text} is a ledger, not a key: leave out --activities") from error
        raise
    key = CollationKey.parse(composite.digits, ids) if composite.children else CollationKey.parse(text, ids)
    return explain_composite(composite, list(key.roster.activities))


def _explain_unnamed(text: str) -> Explanation:
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
        return explain_composite(decompose(text), None)
    except CollationError as error:
        raise UsageError(f"these digits say nothing.\n  As a ledger: {no_ledger}.\n  As a key: {error}.") from error
