"""Published figures: each measurement that is recorded has a JSON file here, from which pages of the documentation get
their tables and drawings. `make docs` writes them again; a test checks that they are current.
"""

import json
import re
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, Final

FOLDER: Final = Path(__file__).parent
DOCS: Final = FOLDER.parents[1] / "docs"
DRAWINGS: Final = DOCS / "drawings"
Report = dict[str, Any]


class Publisher:
    """Where figures of a measurement appear: the page with its markers, and the module that renders them."""

    def __init__(self, measurement: str, module: str, page: str) -> None:
        self.measurement = measurement
        self._module = module
        self.page = DOCS / page

    def markdown(self, report: Report) -> str:
        text: str = import_module(self._module).markdown(report)
        return text

    def drawings(self, report: Report) -> Mapping[str, str]:
        drawn: Callable[[Report], Mapping[str, str]] = import_module(self._module).drawings
        return drawn(report)


PUBLISHERS: Final = {
    "peers": Publisher("peers", "benchmarks.peers.table", "performance.md"),
    "targets": Publisher("targets", "benchmarks.targets", "performance.md"),
    "growth": Publisher("growth", "benchmarks.growth.report", "performance.md"),
    "scale": Publisher("growth", "benchmarks.scale", "scale.md"),
}
"""By the name of the markers on the page."""


def write(folder: Path, name: str, report: Report, markdown: str, drawings: Mapping[str, str]) -> None:
    """The figures as JSON, the text and the drawings, in a folder of the build."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.json").write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    (folder / f"{name}.md").write_text(markdown, encoding="utf-8")
    for file, drawing in drawings.items():
        (folder / file).write_text(drawing, encoding="utf-8")
    print(f"figures, table and drawings: {folder}")


def record(name: str, report: Report) -> None:
    """Keep the figures, and write them into the documentation."""
    (FOLDER / f"{name}.json").write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    for path, text in files().items():
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")


def load(name: str) -> Report:
    """The recorded figures of one measurement."""
    report: Report = json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))
    return report


def files() -> dict[Path, str]:
    """Every page and drawing that has recorded figures, with the text that it must have."""
    found: dict[Path, str] = {}
    for name, publisher in PUBLISHERS.items():
        report = load(publisher.measurement)
        page = found.get(publisher.page) or publisher.page.read_text(encoding="utf-8")
        found[publisher.page] = _replaced(page, name, publisher.markdown(report))
        for file, drawing in publisher.drawings(report).items():
            found[DRAWINGS / file] = drawing
    return found


def _replaced(page: str, name: str, text: str) -> str:
    """The page with new text between its markers `<!-- NAME -->` and `<!-- /NAME -->`."""
    pattern = rf"(?<=<!-- {name} -->\n).*?(?=<!-- /{name} -->)"
    changed, count = re.subn(pattern, lambda _: text, page, flags=re.DOTALL)
    if count != 1:
        raise ValueError(f"the page has no markers for {name}")
    return changed
