"""The house style, where a program can see it: sizes, paths and words."""

import ast
import re
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
MAX_FILE_LINES = 700
MAX_FUNCTION_LINES = 60

# One word per thing, everywhere. The word on the right is ours; the one on the left never names that thing.
OTHER_WORDS = {
    "orchestration": "workflow or instance",
    "orchestrator": "workflow or instance",
    "run_id": "execution",
    "task_queue": "queue",
    "saga_id": "instance",
    "job_id": "instance",
    "signal_name": "event",
    "lock_token": "fence or token",
}

# Every number that the two design documents on digits show.
LEDGER_EXAMPLES = """
999000000000000 899000000000000 889000000000000 889000001000000 889000001000001 889000002000001 888000002000002
888000003000002
"""
KEY_EXAMPLES = """
999969000000000 466366000000000 99996146636629 968969000000000 366863000000000 366663000000000 566366000000000
766366000000000
"""


def tracked(*suffixes: str) -> Iterator[Path]:
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],  # noqa: S607 - git is on the path
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if listed.returncode:  # an unpacked source archive has no git
        paths = [path for folder in ("src", "tests", "docs", "tools") for path in (ROOT / folder).rglob("*")]
    else:
        paths = [ROOT / line for line in listed.stdout.splitlines()]
    yield from (path for path in paths if path.is_file() and (not suffixes or path.suffix in suffixes))


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def shown(path: Path) -> str:
    return str(path.relative_to(ROOT))


STARTS_PROGRAMS = {
    "tests/forking/processes.py",
    "tests/postgres/processes.py",
    "tests/postgres/programs.py",
    "tests/workers/processes.py",
}
"""Modules whose context managers end what they start."""


def test_tests_start_programs_with_helpers_that_end_them() -> None:
    """A test that fails between `Popen` and `wait` would leave its program running."""
    found = [
        f"{shown(path)}: use tests.forking.processes.program"
        for path in tracked(".py")
        if "tests" in path.relative_to(ROOT).parts and shown(path) not in STARTS_PROGRAMS
        if re.search(r"(?<!with )subprocess\.Popen\(", path.read_text(encoding="utf-8"))
    ]
    assert found == []


LISTS = {"tests/postgres/statements.sql", "src/holdfast/core/history.py"}
"""Every statement of a store, to be read as a diff, and every event of a history: lists that are read by searching."""


def test_files_stay_small() -> None:
    too_long = {
        shown(path): lines
        for path in tracked(".py", ".sql", ".js", ".css", ".html")
        if shown(path) not in LISTS and (lines := len(path.read_text(encoding="utf-8").splitlines())) > MAX_FILE_LINES
    }
    assert not too_long, f"cut these along an idea: {too_long}"


def test_functions_stay_small() -> None:
    too_long: list[str] = []
    for path in tracked(".py"):
        for node in ast.walk(parsed(path)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                lines = (node.end_lineno or 0) - node.lineno + 1
                if lines > MAX_FUNCTION_LINES:
                    too_long.append(f"{shown(path)}:{node.lineno} {node.name} has {lines} lines")
    assert not too_long


def test_no_file_names_a_place_on_somebodys_machine() -> None:
    homes = re.compile(r"(?<![\w.$}-])/(?:home|root|Users|work|opt|tmp)/\w")
    assert not [
        f"{shown(path)}:{number}"
        for path in tracked()
        if path.suffix not in (".svg", ".png", ".sqlite")
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if homes.search(line)
    ]


def test_pins_are_names_and_numbers_only() -> None:
    for line in (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines():
        assert re.fullmatch(r"#.*|[\w.-]+==[\w.]+", line), line


def test_one_word_per_thing() -> None:
    found: list[str] = []
    for path in tracked(".py", ".md", ".sql"):
        if path == Path(__file__):
            continue
        text = path.read_text(encoding="utf-8").lower()
        found += [f"{shown(path)} says {word!r}: say {ours}" for word, ours in OTHER_WORDS.items() if word in text]
    assert not found


def test_nothing_unfinished_is_left() -> None:
    marks = re.compile(r"\b(TO" + r"DO|FIX" + r"ME|X" + r"XX)\b")
    assert not [shown(path) for path in tracked(".py") if marks.search(path.read_text(encoding="utf-8"))]


def test_every_module_says_what_it_guarantees() -> None:
    assert not [shown(path) for path in tracked(".py") if not ast.get_docstring(parsed(path))]


def test_every_number_of_the_documents_is_in_a_test() -> None:
    text = " ".join(path.read_text(encoding="utf-8") for path in (ROOT / "tests" / "unit" / "core").glob("*.py"))
    assert not [number for number in f"{LEDGER_EXAMPLES} {KEY_EXAMPLES}".split() if number not in text]


def without_code(page: str) -> str:
    return re.sub(r"```.*?```|`[^`]*`", "", page, flags=re.DOTALL)


def test_every_page_that_is_linked_is_there() -> None:
    broken = [
        f"{shown(path)} -> {target}"
        for path in tracked(".md")
        for target in re.findall(r"\]\((?!https?:|mailto:|#)([^)#]+)", without_code(path.read_text(encoding="utf-8")))
        if not (path.parent / target).exists()
    ]
    assert not broken


def test_scenarios_wait_for_something_and_not_for_a_while() -> None:
    """No sleeps in what a test itself does: it waits for a signal, or time skips. Workflows and bodies may sleep."""
    found = [
        f"{shown(path)}:{call.lineno} {ast.unparse(call)}"
        for path in sorted((ROOT / "tests" / "scenarios").glob("test_*.py"))
        for function in parsed(path).body
        if isinstance(function, ast.FunctionDef) and function.name.startswith("test_")
        for call in _sleeps(function)
        if "simulated time" not in path.read_text("utf-8").splitlines()[call.lineno - 2]
    ]
    assert not found


def _sleeps(function: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[ast.Call]:
    """Short waits in a function, and in those inside it that are neither workflows nor activities."""
    nodes: list[ast.AST] = list(function.body)
    while nodes:
        node = nodes.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.decorator_list:
            continue
        nodes += ast.iter_child_nodes(node)
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith(".sleep"):
            numbers = [part.value for part in ast.walk(node) if isinstance(part, ast.Constant)]
            if any(isinstance(number, float) and number < 1 for number in numbers):
                yield node


STARTS_OF_TASKS = ("create_task", "ensure_future", "Thread")
NOT_IN_THE_BACKGROUND = {
    "background.py",  # where they are started
    "cli/run.py",  # awaited where it is made
    "cli/send.py",  # awaited where it is made
    "cli/worker.py",  # awaited where it is made
    "cli/activity_run.py",  # awaited where they are made
    "cli/program.py",  # awaited where they are made
    "client/worker.py",  # awaited where they are made
    "runtime/attempts/shared_tasks.py",  # bodies of activities
    "runtime/queries.py",  # in a group that belongs to a background task
    "runtime/attempts/launchers.py",  # in a group that belongs to a background task
    "runtime/attempts/executors.py",  # bodies of activities
    "runtime/provided_context.py",  # awaited where it is made, to enter and to leave a context in one task
}


def test_every_background_task_and_thread_is_supervised() -> None:
    """One that is started in any other way could end without being noticed. Code of workflows has a loop of its own."""
    package = ROOT / "src" / "holdfast"
    found: set[str] = set()
    for path in package.rglob("*.py"):
        name = str(path.relative_to(package))
        if name.startswith(("replay/", "testing/")):
            continue
        calls = (node.func for node in ast.walk(parsed(path)) if isinstance(node, ast.Call))
        if any(isinstance(call, ast.Attribute) and call.attr in STARTS_OF_TASKS for call in calls):
            found.add(name)
    assert found <= NOT_IN_THE_BACKGROUND
