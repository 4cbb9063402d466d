"""The published table of targets: what `make bench` and `make bench-postgres` found against their limits."""

import datetime as dt
from collections.abc import Mapping, Sequence
from typing import Any, Final

from benchmarks import recorded
from benchmarks.machine import machine, origin, versions
from benchmarks.report import Verdict, limit_text, shown

SQLITE: Final = "SQLite"
POSTGRES: Final = "PostgreSQL"
COMMANDS: Final = {SQLITE: "make bench", POSTGRES: "make bench-postgres"}


def started(more_versions: Mapping[str, str] | None = None) -> dict[str, Any]:
    """When and where the measurement begins."""
    return {
        "taken": dt.datetime.now(dt.UTC).date().isoformat(),
        "machine": machine(),
        "versions": {**versions(), **(more_versions or {})},
    }


def record(store: str, begun: Mapping[str, Any], verdicts: Sequence[Verdict], seconds: float) -> None:
    """Keep the figures of one store, and write the pages that have them."""
    figures = [
        {
            "bench": verdict.bench,
            "figure": verdict.target.text,
            "unit": verdict.target.unit,
            "value": verdict.value,
            "limit": verdict.target.limit,
            "at_least": verdict.target.at_least,
        }
        for verdict in verdicts
    ]
    run = {**begun, "seconds": round(seconds), "figures": figures}
    recorded.record("targets", {**recorded.load("targets"), store: run})


def markdown(report: Mapping[str, Any]) -> str:
    """The part of a page that has the figures."""
    parts: list[str] = []
    for store, command in COMMANDS.items():
        run = report.get(store)
        if run is not None:
            parts += [f"**{store}** (`{command}`). {origin(run)}", "", *_table(run["figures"]), "", _misses(run), ""]
    return "\n".join(parts)


def drawings(report: Mapping[str, Any]) -> dict[str, str]:
    """None: the table says it all."""
    del report
    return {}


def _table(figures: Sequence[Mapping[str, Any]]) -> list[str]:
    lines = ["| benchmark | figure | measured | target |", "|---|---|---|---|"]
    for figure in figures:
        limit = limit_text(figure["limit"], at_least=figure["at_least"])
        missed = "" if _is_met(figure) else ", **missed**"
        value = f"{shown(figure['value'])} {figure['unit']}".rstrip()
        lines.append(f"| {figure['bench']} | {figure['figure']} | {value} | {limit}{missed} |")
    return lines


def _misses(run: Mapping[str, Any]) -> str:
    missed = sum(not _is_met(figure) for figure in run["figures"])
    judged = sum(figure["limit"] is not None for figure in run["figures"])
    return f"{judged - missed} of {judged} targets were met in this run."


def _is_met(figure: Mapping[str, Any]) -> bool:
    limit = figure["limit"]
    if limit is None:
        return True
    return bool(figure["value"] >= limit if figure["at_least"] else figure["value"] <= limit)
