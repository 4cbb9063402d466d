"""Every Python snippet of the guide runs."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SNIPPETS = [
    (page.name, number, code)
    for page in [ROOT / "README.md", *sorted((ROOT / "docs" / "guide").glob("*.md"))]
    for number, code in enumerate(re.findall(r"```python\n(.*?)```", page.read_text("utf-8"), re.DOTALL))
]


@pytest.mark.slow
@pytest.mark.parametrize(("page", "number", "code"), SNIPPETS, ids=[f"{page}-{number}" for page, number, _ in SNIPPETS])
def test_a_snippet_runs(page: str, number: int, code: str, tmp_path: Path) -> None:
    program = tmp_path / "snippet.py"
    program.write_text(code, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, program], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, f"{page}, snippet {number}:\n{done.stderr}"
