"""Drawings: everything of a flow is in them, nothing overlaps, and nothing in a name breaks them."""

from itertools import pairwise
from xml.etree import ElementTree as ET

from hypothesis import given
from hypothesis import strategies as st
from tests.unit.flows.writing import SAMPLES

import holdfast as hf
from holdfast.flows import svg as drawing
from holdfast.flows.svg import lay_out

SVG = "{http://www.w3.org/2000/svg}"
FOX = hf.Flow.load(SAMPLES / "fox.yaml")
ORDER = hf.Flow.load(SAMPLES / "order.yaml")


def texts(svg: str) -> list[str]:
    return [element.text or "" for element in ET.fromstring(svg).iter(f"{SVG}text")]  # noqa: S314  # we made it


def test_a_drawing_has_every_activity_edge_and_condition() -> None:
    svg = ORDER.to_svg()
    drawn = texts(svg)
    assert {node.id for node in ORDER.definition.nodes} <= set(drawn)
    assert {"received.input.cents > 100000", "on CardDeclined", "check.output == true", "order 3"} <= set(drawn)
    assert svg.count('class="edge plain ') == 10
    assert svg.count('class="edge error ') == 1
    assert svg.count('class="edge back ') == 1
    assert "prefers-color-scheme:dark" in svg
    assert ORDER.to_svg() == svg


def test_K7_the_digits_of_an_instance_are_on_its_activities() -> None:
    digits = dict(zip([node.id for node in FOX.definition.nodes], "5636366", strict=True))
    svg = FOX.to_svg(digits=digits, children={"fox": ["466366"]}, key="563636600000000")
    drawn = texts(svg)
    assert drawn.count("6") == 4
    assert "waiting \u00b7 event dinner, at \u2026" in drawn
    assert "completed 14663662" in drawn
    assert "563636600000000" in drawn
    assert '<g class="run d3">' in svg


def test_a_drawing_has_its_colours_without_style_sheets() -> None:
    """Programs that are no browsers ignore the style sheet, or read a variable as black."""
    digits = dict(zip([node.id for node in FOX.definition.nodes], "5436789", strict=True))
    for svg in (ORDER.to_svg(), FOX.to_svg(digits=digits, key="543678900000000")):
        root = ET.fromstring(svg)  # noqa: S314  # we made it
        drawn = [
            element for element in root.iter() if element.tag.removeprefix(SVG) in ("rect", "path", "circle", "text")
        ]
        assert len(drawn) > 20
        for element in drawn:
            colours = [value for name in ("fill", "stroke") if (value := element.get(name)) is not None]
            assert any(colour in drawing.LIGHT.values() for colour in colours), ET.tostring(element)
            assert set(colours) <= {"none", *drawing.LIGHT.values()}
            for word in (element.get("class") or "").split():
                assert word[:2] not in ("f-", "s-") or word[2:] in drawing.LIGHT
            assert element.tag != f"{SVG}text" or element.get("font-size")
        assert "style=" not in svg
        rules = svg.partition("<style>")[2].partition("</style>")[0]
        assert rules.startswith("@supports (color:var(--text)){")
        assert "var(" not in svg.replace(rules, "")
    assert drawing.LIGHT.keys() == drawing.DARK.keys()


def test_a_mermaid_text_has_every_activity_and_edge() -> None:
    text = ORDER.to_mermaid(digits={"check": "8", "ship": "6"})
    assert text.startswith("flowchart TD\n")
    assert 'n9[["ship<br/>flow shipping<br/>6 completed"]]' in text
    assert 'n5 -->|"received.input.cents #62; 100000"| n1' in text
    assert 'n2 -.->|"on CardDeclined"| n7' in text
    assert 'n0 -.->|"again"| n3' in text
    assert "class n3 d8" in text


@given(st.text(max_size=40), st.text(max_size=40))
def test_nothing_in_a_name_breaks_a_drawing(key: str, condition: str) -> None:
    flow = hf.Flow("<&>\"'")
    flow.trigger("start")
    flow.run("a" * 100, "x", after="start", when=flow.text(condition.encode(errors="replace").decode()) + " == 'x'")
    ET.fromstring(flow.to_svg(key=key))  # noqa: S314  # we made it
    lines = flow.to_mermaid().splitlines()
    assert len(lines) == 4
    assert lines[3].count('"') == 2


@st.composite
def graphs(draw: st.DrawFn) -> dict[str, list[str]]:
    """Up to 30 nodes, each after some of those before it."""
    names = [f"n{number}" for number in range(draw(st.integers(1, 30)))]
    sources: dict[str, list[str]] = {names[0]: []}
    for place, name in enumerate(names[1:], 1):
        sources[name] = draw(st.lists(st.sampled_from(names[:place]), min_size=1, max_size=4, unique=True))
    return sources


@given(graphs())
def test_no_two_boxes_overlap_and_edges_go_down(sources: dict[str, list[str]]) -> None:
    layout = lay_out(sources, drawing.SPACE)
    rows: dict[int, list[float]] = {}
    for name, above in sources.items():
        rows.setdefault(layout.layers[name], []).append(layout.middles[name])
        for source in above:
            assert layout.layers[source] < layout.layers[name]
            passed = layout.layers[name] - layout.layers[source] - 1
            assert len(layout.ways.get((source, name), ())) == passed
    for row in rows.values():
        for left, right in pairwise(sorted(row)):
            assert right - left >= drawing.BOX_WIDTH


def test_a_diamond_is_symmetric() -> None:
    layout = lay_out({"a": [], "b": ["a"], "c": ["a"], "d": ["b", "c"]}, 100)
    assert layout.layers == {"a": 0, "b": 1, "c": 1, "d": 2}
    assert layout.middles["a"] == layout.middles["d"] == (layout.middles["b"] + layout.middles["c"]) / 2


def test_a_flow_with_very_many_long_edges_is_drawn_without_their_points() -> None:
    sources: dict[str, list[str]] = {"start": [], "n0": ["start"]}
    sources |= {f"n{number}": [f"n{number - 1}", "start"] for number in range(1, 500)}
    assert lay_out(sources, 100).ways == {}


def test_K10_K11_holds_and_responses_are_drawn() -> None:
    flow = hf.Flow.parse("""
flow: f
activities:
  start: {trigger: true}
  quotes: {run: q, after: start}
  price: {run: p, each: quotes.responses, after: quotes, hold: {timeout: 1d}}
""")
    digits = {"price": "5", "quotes": "6", "start": "6"}
    mermaid = flow.to_mermaid(digits=digits)
    assert "price<br/>each response of quotes: p<br/>hold, at most 1d<br/>5 held" in mermaid
    assert '-->|"responses"|' in mermaid
    svg = flow.to_svg(digits=digits)
    assert "<title>price: each response of quotes: p, hold, at most 1d, 5 held</title>" in svg
    assert "responses" in texts(svg)
    assert "hold" in " ".join(
        texts(hf.Flow.parse("flow: f\nactivities:\n  s: {trigger: true}\n  a: {run: p, after: s, hold: true}").to_svg())
    )
