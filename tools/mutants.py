"""``make mutants``: mutation tests. Each mutant is a small edit of the engine that a test must catch.

For each mutant, the package and the tests are copied to a temporary folder, the edit is made there, and the tests that
are listed for it run. A mutant that survives is a gap in the tests; an edit that no longer applies has to be adapted to
the code. Both end the run with exit code 1, as does a test that fails without any edit. `tools.mutations` has the list.

``python -m tools.mutants fence timer`` runs only those with one of the words in their names.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from holdfast.runtime.platform import SystemClockAndIds
from tools.mutations import MUTANTS, Mutant

ROOT: Final = Path(__file__).parents[1]
PACKAGE: Final = "src/holdfast"
JOBS: Final = 2
TEST_SECONDS: Final = 30
"""The time limit of one test: a mutant may make it hang."""
RUN_SECONDS: Final = 120
ALL_SECONDS: Final = 900
"""The time limit of all tests without an edit."""
FAILED: Final = re.compile(r"^(?:FAILED|ERROR) (\S+)", re.MULTILINE)


class EditDoesNotApply(Exception):
    """The text that a mutant changes is not in its file, or more than once."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result of a mutant: the test that caught it, or the problem."""

    mutant: Mutant
    caught_by: str
    problem: str
    seconds: float


def edited(mutant: Mutant, root: Path = ROOT) -> str:
    """The text of the mutant's file with its edit."""
    text = (root / mutant.file).read_text(encoding="utf-8")
    count = text.count(mutant.old)
    if count != 1:
        raise EditDoesNotApply(f"{mutant.name}: {mutant.old!r} is {count} times in {mutant.file}, expected once")
    return text.replace(mutant.old, mutant.new)


def copy_to(folder: Path) -> None:
    """Copy the package beside the tests, so that it is imported instead of the installed one."""
    leave_out = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / PACKAGE, folder / "holdfast", ignore=leave_out)
    for part in ("tests", "tools", "examples"):
        shutil.copytree(ROOT / part, folder / part, ignore=leave_out)
    shutil.copy(ROOT / "pyproject.toml", folder)


def run_tests(folder: Path, tests: Sequence[str], seconds: float) -> "subprocess.CompletedProcess[str] | None":
    """Run tests on the copy until one fails; None after `seconds`."""
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-x",
        "--tb=no",
        "--timeout",
        str(TEST_SECONDS),
    ]
    environment = {**os.environ, "PYTHONPATH": str(folder), "HYPOTHESIS_PROFILE": "dev", "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        return subprocess.run(  # noqa: S603 - our own tests
            [*command, *tests],
            cwd=folder,
            env=environment,
            timeout=seconds,
            check=False,
            capture_output=True,
            text=True,
        )
    except subprocess.TimeoutExpired:
        return None


def judge(mutant: Mutant) -> Verdict:
    """Make the edit in a new copy, and run its tests."""
    now_ms = SystemClockAndIds().elapsed_precise_ms
    before_ms = now_ms()
    with tempfile.TemporaryDirectory(prefix="holdfast-mutant-") as name:
        folder = Path(name)
        copy_to(folder)
        try:
            target = folder / mutant.file.removeprefix("src/")
            target.write_text(edited(mutant), encoding="utf-8")
        except EditDoesNotApply as error:
            return Verdict(mutant, "", str(error), 0.0)
        done = run_tests(folder, mutant.tests, RUN_SECONDS)
    seconds = (now_ms() - before_ms) / 1000
    if done is None:
        return Verdict(mutant, f"no end within {RUN_SECONDS} s", "", seconds)
    failed = FAILED.findall(done.stdout)
    if done.returncode == 1 and failed:
        return Verdict(mutant, failed[0].rpartition("::")[2], "", seconds)
    if done.returncode == 0:
        return Verdict(mutant, "", "SURVIVED", seconds)
    return Verdict(
        mutant, "", f"pytest ended with {done.returncode}: {done.stdout[-300:]}{done.stderr[-300:]}", seconds
    )


def fail_without_an_edit(mutants: Sequence[Mutant]) -> str:
    """Run the tests of all mutants without an edit: the output if one fails, else empty."""
    tests = sorted({test for mutant in mutants for test in mutant.tests})
    with tempfile.TemporaryDirectory(prefix="holdfast-mutant-") as name:
        folder = Path(name)
        copy_to(folder)
        where = "import holdfast; print(holdfast.__file__)"
        found = subprocess.run(  # noqa: S603 - our own interpreter
            [sys.executable, "-c", where], cwd=folder, check=True, capture_output=True, text=True
        ).stdout.strip()
        if not Path(found).resolve().is_relative_to(folder.resolve()):
            return f"the copy was not the one that is imported, but {found}"
        done = run_tests(folder, tests, ALL_SECONDS)
    if done is None:
        return f"the tests did not end within {ALL_SECONDS} s"
    return "" if done.returncode == 0 else done.stdout[-2000:] + done.stderr[-2000:]


def show(verdict: Verdict) -> None:
    """Print the line of a mutant."""
    mutant = verdict.mutant
    caught = f"caught by {verdict.caught_by}" if verdict.caught_by else verdict.problem
    print(f"{mutant.name:<54} {mutant.rule:<13} {verdict.seconds:4.0f} s  {caught}", flush=True)


def judge_and_show(mutant: Mutant) -> Verdict:
    """Judge a mutant and print its line."""
    verdict = judge(mutant)
    show(verdict)
    return verdict


def main(words: Sequence[str]) -> int:
    """Judge all mutants, or those whose names have one of the words."""
    if "--help" in words or "-h" in words:
        print(
            "usage: python -m tools.mutants [WORD ...]\nJudges all mutants, or those whose names have one of the words."
        )
        return 0
    mutants = [mutant for mutant in MUTANTS if not words or any(word in mutant.name for word in words)]
    if not mutants:
        print(
            f"no mutant's name has any of {', '.join(words)}; there are {len(MUTANTS)}, without a word all are judged"
        )
        return 2
    broken = fail_without_an_edit(mutants)
    if broken:
        print(f"the tests fail without any edit:\n{broken}")
        return 1
    with ThreadPoolExecutor(JOBS) as pool:
        verdicts = list(pool.map(judge_and_show, mutants))
    problems = [verdict for verdict in verdicts if verdict.problem]
    print(f"{len(verdicts) - len(problems)} of {len(verdicts)} mutants were caught")
    return 1 if problems or not verdicts else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
