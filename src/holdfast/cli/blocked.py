"""``holdfast blocked``: the blocked instances of a store by reason, and what to do about them (R17)."""

from typing import Any, Final

import click
from rich.text import Text

from holdfast.cli.console import count_text, json_text, moment_text, print_line, safe, safe_lines, standard_output
from holdfast.cli.store_option import read_store
from holdfast.client.views.blocked import BlockedGroup, read_blocked
from holdfast.client.views.instances import moment
from holdfast.compose import checkable

SHOWN_BUILDS: Final = 3
LONGEST_REASON: Final = 500


def blocked(
    *, workflow: str | None = None, whole: bool = False, store: str | None = None, as_json: bool = False
) -> None:
    """List the blocked instances of a store by reason."""
    report = read_store(store, lambda opened: read_blocked(checkable(opened), workflow))
    if as_json:
        fields = {
            "instances": report.instances,
            "complete": report.is_whole,
            "groups": [_fields(group) for group in report.groups],
        }
        click.echo(json_text(fields))
        return
    console = standard_output()
    if not report.groups:
        print_line(console, Text("No blocked instances."))
    for group in report.groups:
        for line, indent in _lines(group, is_whole=whole):
            print_line(console, line, indent)
    if not report.is_whole:
        print_line(console, Text(f"only the first {report.instances:,} were read", "dim"))


def _lines(group: BlockedGroup, *, is_whole: bool) -> list[tuple[Text, str]]:
    example = group.example
    first, _, rest = example.reason.partition("\n")
    lines = [
        (Text.assemble((safe(group.workflow), "bold"), f"  {count_text(group.instances, 'instance')}"), ""),
        (Text(safe(first, len(first) if is_whole else LONGEST_REASON), "red"), "  "),
    ]
    trace = safe_lines(rest, len(rest)).splitlines()
    lines += [(Text(line, "dim"), "    ") for line in (trace if is_whole else trace[-SHOWN_BUILDS:])]
    builds = ", ".join(safe(build) for build in group.builds[:SHOWN_BUILDS])
    more = len(group.builds) - SHOWN_BUILDS
    by = f"{builds} and {more} more" if more > 0 else builds
    named = "oldest" if group.instances > 1 else "it is"
    lines.append((Text(f"{named} {safe(example.id)}, created {moment_text(example.created_at_ms)} UTC"), "  "))
    lines.append((Text(f"blocked by build {by}" if by else "blocked by no build"), "  "))
    lines.append((Text(f"to do: {group.remedy}"), "  "))
    return lines


def _fields(group: BlockedGroup) -> dict[str, Any]:
    return {
        "workflow": group.workflow,
        "count": group.instances,
        "reason": group.example.reason,
        "example": group.example.id,
        "oldest": moment(group.example.created_at_ms),
        "builds": list(group.builds),
        "remedy": group.remedy,
    }
