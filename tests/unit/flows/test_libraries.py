"""Without the extra ``holdfast[flows]`` everything but flows works, and flows say what to install."""

import subprocess
import sys
from pathlib import Path

WITHOUT = "import sys; sys.modules['yaml'] = None; sys.modules['cel_expr_python'] = None\n"
SENTENCE = "flows need two more libraries: pip install 'holdfast[flows]'"


def run(code: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", WITHOUT + code], cwd=folder, capture_output=True, text=True, check=False
    )


def test_every_name_is_there_and_a_flow_that_is_built_or_parsed_names_the_extra(tmp_path: Path) -> None:
    done = run(
        "import holdfast as hf\n"
        "from holdfast import *\n"
        "for make in (lambda: hf.Flow('f'), lambda: hf.Flow.parse('flow: f')):\n"
        "    try:\n"
        "        make()\n"
        "    except hf.FlowError as error:\n"
        "        print(error)\n",
        tmp_path,
    )
    assert [line.startswith(SENTENCE) for line in done.stdout.splitlines()] == [True, True], done.stderr


def test_the_command_names_the_extra_in_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "f.yaml").write_text("flow: f\n", encoding="utf-8")
    done = run("sys.argv = ['holdfast', 'flow', 'check', 'f.yaml']\nfrom holdfast.cli import main\nmain()", tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith(f"holdfast: {SENTENCE}")
    assert "Traceback" not in done.stderr
