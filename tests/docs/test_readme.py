"""The README: its commands run on the store of its own program, and its picture is the output of the demo."""

import html
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tools import demo

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text("utf-8")
PICTURE = (ROOT / "docs" / "demo.svg").read_text("utf-8")


def lines_of_the_picture() -> list[str]:
    """The text of each line of the terminal, by its height in the drawing."""
    rows: dict[float, str] = {}
    for height, text in re.findall(r'<text [^>]*\by="([\d.]+)"[^>]*>(.*?)</text>', PICTURE):
        rows[float(height)] = rows.get(float(height), "") + html.unescape(text).replace("\xa0", " ")
    return [rows[height] for height in sorted(rows)]


@pytest.mark.slow
def test_the_commands_after_the_program_run_on_its_store(tmp_path: Path) -> None:
    [program] = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    [commands] = [block for block in re.findall(r"```sh\n(.*?)```", README, re.DOTALL) if "holdfast show" in block]
    (tmp_path / "shop.py").write_text(program, encoding="utf-8")
    first = subprocess.run([sys.executable, "shop.py"], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert first.stdout == "receipt for 300\n"
    environment = dict(os.environ)
    for line in commands.splitlines():
        words = shlex.split(line)
        if words[0] == "export":
            name, _, value = words[1].partition("=")
            environment[name] = value
            continue
        assert words[0] == "holdfast"
        done = subprocess.run(
            [sys.executable, "-m", *words], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        assert "order-42" in done.stdout or "activity_scheduled" in done.stdout


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("sqlite3") is None, reason="the sqlite3 command is not installed")
def test_a_row_and_a_command_start_the_workflow(tmp_path: Path) -> None:
    [program] = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    [commands] = [block for block in re.findall(r"```sh\n(.*?)```", README, re.DOTALL) if "INSERT INTO" in block]
    (tmp_path / "shop.py").write_text(program, encoding="utf-8")
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "HOLDFAST_STORE": "shop.db"}
    subprocess.run([sys.executable, "shop.py"], cwd=tmp_path, env=environment, capture_output=True, check=True)
    script = "\n".join(
        [
            "set -e",
            "trap 'kill $!; wait' EXIT",
            commands,
            """holdfast start checkout --id order-43 --input '["4242", 300]' --wait""",
        ]
    )
    done = subprocess.run(
        ["bash", "-c", script],  # noqa: S607 - the README is for a shell
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=90,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count('result "receipt for 300"') == 2, "one by row and one by command"


def test_the_picture_shows_the_demo_of_today_and_fits_its_width() -> None:
    text = "\n".join(lines_of_the_picture())
    for expected in ("make demo", "whose worker is killed", f"worker 1 died while {demo.KILLED_IN} ran", "ran once"):
        assert expected in text, "run python -m tools.demo_picture"
    assert all(len(line.rstrip()) <= 72 for line in lines_of_the_picture())
    assert "http" not in PICTURE.replace("http://www.w3.org/2000/svg", "")
