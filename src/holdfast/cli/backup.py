"""``holdfast backup`` copies a SQLite store; ``holdfast restored`` makes a restored store fit for use (R1-R3)."""

import sys
from typing import Final

import click
import msgspec
from rich.text import Text

from holdfast.audit.backup import BackupPhase, BackupReport
from holdfast.audit.backup import backup as write_backup
from holdfast.cli.bar import ProgressBar
from holdfast.cli.console import count_text, json_text, moment_text, print_line, safe, standard_output
from holdfast.cli.exits import EXIT_NEGATIVE
from holdfast.cli.store_option import existing_store, read_store, use_client
from holdfast.client.restoring import RestoreReport, RunningStep, plan_restore
from holdfast.compose import display_name, restorable

MOST_STEPS: Final = 1_000
"""Steps and problems that are printed for people; JSON has all of them."""
_NOUNS: Final = {BackupPhase.COPY: "page", BackupPhase.VERIFY: "instance"}


def backup(
    file: str, *, force: bool = False, check: bool = True, store: str | None = None, as_json: bool = False
) -> None:
    """Copy a live SQLite store into a file, and check the copy."""
    path = existing_store(store)
    with ProgressBar(is_shown=not as_json and sys.stderr.isatty()) as bar:
        report = write_backup(
            path,
            file,
            replace=force,
            verify=check,
            progress=lambda phase, done, total: bar.show(done, total, _NOUNS[phase]),
        )
    if as_json:
        fields = {
            "store": display_name(path),
            "file": str(report.file),
            "bytes": report.size_bytes,
            "written": not report.problems,
            "verified": report.is_verified,
            "instances": report.instances if report.is_verified else None,
            "problems": msgspec.to_builtins(report.problems),
        }
        click.echo(json_text(fields))
    else:
        _show_backup(report)
    if report.problems:
        raise SystemExit(EXIT_NEGATIVE)


def _show_backup(report: BackupReport) -> None:
    console = standard_output()
    for problem in report.problems[:MOST_STEPS]:
        print_line(console, Text(safe(str(problem))))
    if report.problems:
        verdict = Text.assemble(
            (f"no backup was written: {count_text(len(report.problems), 'problem')} in the copy", "bold red"),
            "; --no-verify writes it without this check",
        )
    else:
        checked = (
            f"{count_text(report.instances, 'instance')} checked" if report.is_verified else "only the file was checked"
        )
        verdict = Text.assemble(
            (f"{safe(str(report.file))} is written", "bold green"), f": {report.size_bytes:,} bytes, {checked}"
        )
    print_line(console, verdict)


def restored(*, dry_run: bool = False, force: bool = False, store: str | None = None, as_json: bool = False) -> None:
    """Make a store fit for use after a backup was restored."""
    path = existing_store(store)
    with ProgressBar(is_shown=not as_json and sys.stderr.isatty()) as bar:
        if dry_run:
            report = read_store(store, lambda opened: plan_restore(restorable(opened), force=force))
        else:
            report = use_client(
                store,
                lambda client: client.restored(
                    force=force, progress=lambda done, total: bar.show(done, total, "instance")
                ),
            )
    if as_json:
        click.echo(json_text({"store": display_name(path), **msgspec.to_builtins(report)}))
    else:
        _show_restored(report, display_name(path))


def _show_restored(report: RestoreReport, name: str) -> None:
    console = standard_output()
    if report.running:
        print_line(console, Text("Running at the backup; each runs again, and its effects may have happened:", "bold"))
    for step in report.running[:MOST_STEPS]:
        print_line(console, _step_line(step))
    if len(report.running) > MOST_STEPS:
        print_line(console, Text(f"and {len(report.running) - MOST_STEPS:,} more (--json has all)", "dim"))
    counts = (
        f"{count_text(len(report.workers), 'worker key')} ended, "
        f"{count_text(report.instances, 'open instance')} fenced, "
        f"{count_text(report.external_attempts, 'external attempt')} with a new exec id, numbers lifted by 2^32"
    )
    if report.dry_run:
        verdict = Text.assemble(
            ("nothing was changed", "bold yellow"), f" in {safe(name)}; without --dry-run: {counts}"
        )
    else:
        verdict = Text.assemble((f"{safe(name)} is ready for workers", "bold green"), f": {counts}")
    print_line(console, verdict)


def _step_line(step: RunningStep) -> Text:
    where = "an executor" if step.worker is None else f"worker {step.worker}"
    since = "" if step.started_at is None else f" since {moment_text(round(step.started_at.timestamp() * 1000))}"
    place = f" in dimension {step.dimension}" if step.dimension else ""
    return Text.assemble(
        "  ",
        (safe(step.instance), "cyan"),
        f"  {safe(step.activity)}{safe(place)} attempt {step.attempt} {step.state}, with {safe(where)}{since}",
    )
