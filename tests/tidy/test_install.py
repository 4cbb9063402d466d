"""A newcomer's install: `pip install .` into an empty environment gives a working command."""

import subprocess
import venv
from pathlib import Path

import pytest
from benchmarks.imports import packages

ROOT = Path(__file__).parents[2]


def test_pip_install_holdfast_brings_at_most_eight_packages() -> None:
    found = packages()
    assert len(found) <= 8, found
    assert not {"pydantic", "pyyaml", "cel-expr-python", "psycopg", "typer"} & set(found)


@pytest.mark.slow
def test_the_command_works_after_a_plain_install_into_an_empty_environment(tmp_path: Path) -> None:
    venv.create(tmp_path / "empty", with_pip=True)
    python = tmp_path / "empty" / "bin" / "python"
    install = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", str(ROOT)]
    subprocess.run([*install, "--constraint", str(ROOT / "constraints.txt")], check=True, capture_output=True)
    command = [str(python.parent / "holdfast"), "explain", "888000002000002"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path)
    assert "leg 2 closed by a final response" in done.stdout
    (tmp_path / "f.yaml").write_text("flow: f\n", encoding="utf-8")
    flow = subprocess.run(
        [command[0], "flow", "check", "f.yaml"], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert flow.returncode == 2
    assert "pip install 'holdfast[flows]'" in flow.stderr
    listed = subprocess.run(
        [python, "-m", "pip", "list", "--format=freeze"], capture_output=True, text=True, check=True, cwd=tmp_path
    )
    installed = {line.partition("=")[0].lower() for line in listed.stdout.splitlines()} - {"pip", "setuptools", "wheel"}
    assert installed == {name.lower() for name in packages()}
    typed = "import holdfast, pathlib; print((pathlib.Path(holdfast.__file__).parent / 'py.typed').exists())"
    done = subprocess.run([python, "-c", typed], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert done.stdout.strip() == "True"
