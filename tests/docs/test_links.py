"""Links and anchors of all pages resolve, every page is on the map, and no page names a folder of one machine."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = [
    path
    for folder in (ROOT.glob("*.md"), DOCS.rglob("*.md"), (ROOT / "examples").rglob("*.md"))
    for path in sorted(folder)
]
FENCE = re.compile(r"^ *```.*?^ *```", re.DOTALL | re.MULTILINE)
CODE = re.compile(r"`[^`\n]*`")
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
MACHINE = re.compile(r"(?<![\w/.])/(?:work|root|home|Users|opt|var/tmp)/")


def prose_of(page: Path) -> str:
    """The page without its code."""
    return CODE.sub("", FENCE.sub("", page.read_text("utf-8")))


def anchors_of(page: Path) -> set[str]:
    """The anchors that GitHub gives the headings of a page."""
    found: set[str] = set()
    for heading in re.findall(r"^#+ (.*)$", FENCE.sub("", page.read_text("utf-8")), re.MULTILINE):
        text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).strip().lower()
        anchor = re.sub(r"[^\w\- ]", "", text).replace(" ", "-")
        number = 0
        while (candidate := f"{anchor}-{number}" if number else anchor) in found:
            number += 1
        found.add(candidate)
    return found


def shown(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", PAGES, ids=shown)
def test_links_and_anchors_of_a_page_resolve(page: Path) -> None:
    broken: list[str] = []
    for link in LINK.findall(prose_of(page)):
        if re.match(r"[a-z]+:", link):
            continue
        target, _, anchor = link.partition("#")
        path = (page.parent / target).resolve() if target else page
        if not path.exists() or (anchor and anchor not in anchors_of(path)):
            broken.append(link)
    assert not broken


@pytest.mark.parametrize("page", PAGES, ids=shown)
def test_fences_of_a_page_are_closed_and_tables_have_even_rows(page: Path) -> None:
    text = page.read_text("utf-8")
    assert len(re.findall(r"^ *```", text, re.MULTILINE)) % 2 == 0
    columns = 0
    for line in FENCE.sub("", text).splitlines():
        if not line.startswith("|"):
            columns = 0
            continue
        cells = re.sub(r"\\\||`[^`]*`", "", line).strip().strip("|").count("|") + 1
        columns = columns or cells
        assert cells == columns, line


@pytest.mark.parametrize("page", PAGES, ids=shown)
def test_a_page_names_no_folder_of_one_machine(page: Path) -> None:
    assert not MACHINE.findall(page.read_text("utf-8"))


def pages_linked_by(page: Path) -> set[Path]:
    links = (link.partition("#")[0] for link in LINK.findall(prose_of(page)) if not re.match(r"[a-z]+:", link))
    return {(page.parent / link).resolve() for link in links if link.endswith(".md")}


def test_the_map_links_the_guide_and_leads_to_every_page() -> None:
    start = DOCS / "index.md"
    assert set((DOCS / "guide").glob("*.md")) <= pages_linked_by(start)
    reached: set[Path] = set()
    waiting = {start}
    while waiting:
        reached |= waiting
        waiting = {page for known in waiting for page in pages_linked_by(known) if page.exists()} - reached
    assert set(PAGES) <= reached, sorted(shown(path) for path in set(PAGES) - reached)


def test_the_index_of_decisions_has_their_titles() -> None:
    index = (DOCS / "decisions" / "README.md").read_text("utf-8")
    for page in sorted((DOCS / "decisions").glob("0*.md")):
        title = page.read_text("utf-8").partition("\n")[0].removeprefix("# ")
        assert f"- [{title}]({page.name})" in index


def test_the_glossary_is_sorted_and_every_term_has_a_link() -> None:
    rows = re.findall(
        r"^\| \*\*(.+?)\*\* \| (.+?) \| (.+?) \|$", (DOCS / "glossary.md").read_text("utf-8"), re.MULTILINE
    )
    terms = [term.lower() for term, _, _ in rows]
    assert len(terms) > 40
    assert terms == sorted(terms)
    assert all(LINK.search(link) for _, _, link in rows)
