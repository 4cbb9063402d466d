"""Literals where an expression is expected: which of them can never be right there, so that nobody has to run them."""

from holdfast.flows.occurrences import FoundExpression


def why_never(found: FoundExpression, value: object) -> str:
    """Why this literal always fails there, or nothing."""
    match found.where.rpartition(".")[2] if found.after else found.where:
        case "when":
            return "" if isinstance(value, bool) else f"a condition is true or false, and {found.text} is neither"
        case "interrupt":
            said = "interrupt takes self, or an expression that gives the id of an instance, which is a text"
            return "" if isinstance(value, str) else f"{said}, not {found.text}"
        case "id" | "raise.to":
            return "" if isinstance(value, str) else f"the id of an instance is a text, and {found.text} is none"
        case "each":
            return f"each goes over a list, and {found.text} is none"
        case "wait.timeout" | "wait.timer" | "delay":
            is_time = isinstance(value, int | float) and not isinstance(value, bool) and value >= 0
            return "" if is_time else f"a time is a number of seconds, 0 or more, and {found.text} is none"
        case _:
            return ""
