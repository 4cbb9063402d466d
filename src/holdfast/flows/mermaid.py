"""A flow as a Mermaid flowchart, which GitHub and many editors draw."""

from collections.abc import Iterator, Mapping
from typing import Final

from holdfast.core.flow.definition import CycleAction, FlowDefinition, Node
from holdfast.core.flow.graph import Join
from holdfast.flows.labels import detail_of, edge_label, hold_label, kind_of, safe, state_of

SHAPES: Final = {
    "trigger": ("([", "])"),
    "run": ("[", "]"),
    "flow": ("[[", "]]"),
    "wait": ("{{", "}}"),
    "cycle": ("(", ")"),
    "raise": (">", "]"),
    "interrupt": ("[/", "/]"),
}
_COLOURS: Final = {
    "9": "#7b8794", "8": "#1f6fd6", "7": "#c62f2f", "6": "#1d8348", "5": "#b36b00", "4": "#0b7d83", "3": "#a3acb8",
}  # fmt: skip


def draw_mermaid(definition: FlowDefinition, *, digits: Mapping[str, str] | None = None) -> str:
    """The flow as Mermaid source. Its nodes are numbered, because ids may be reserved words of Mermaid."""
    numbers = {node.id: f"n{number}" for number, node in enumerate(definition.nodes)}
    lines = ["flowchart TD"]
    lines += [f"  {_node(node, numbers[node.id], (digits or {}).get(node.id, ''))}" for node in definition.nodes]
    for node in definition.nodes:
        lines += [f"  {line}" for line in _edges(node, numbers)]
    for digit, colour in _COLOURS.items():
        marked = [numbers[name] for name, its in (digits or {}).items() if its == digit and name in numbers]
        if marked:
            lines += [f"  classDef d{digit} stroke:{colour},stroke-width:3px", f"  class {','.join(marked)} d{digit}"]
    return "\n".join(lines) + "\n"


def _node(node: Node, number: str, digit: str) -> str:
    opens, closes = SHAPES[kind_of(node.action)]
    word = state_of(digit, node.hold)
    state = f"<br/>{digit} {word}" if word else ""
    join = "<br/>any of them" if node.join is Join.ANY else ""
    when = f"<br/>if {_escaped(node.when)}" if node.when else ""
    hold = f"<br/>{_escaped(hold_label(node.hold))}" if node.hold is not None else ""
    detail = _escaped(detail_of(node.action))
    return f'{number}{opens}"{_escaped(node.id)}<br/>{detail}{join}{when}{hold}{state}"{closes}'


def _edges(node: Node, numbers: Mapping[str, str]) -> Iterator[str]:
    for edge in node.after:
        arrow = "-->" if edge.catch is None else "-.->"
        label = edge_label(node, edge)
        text = f'|"{_escaped(label)}"|' if label else ""
        yield f"{numbers[edge.source]} {arrow}{text} {numbers[node.id]}"
    if isinstance(node.action, CycleAction) and node.action.target in numbers:
        yield f'{numbers[node.id]} -.->|"again"| {numbers[node.action.target]}'


def _escaped(text: str) -> str:
    """A string inside quotes. Characters with a meaning in Mermaid or HTML are written as numbers."""
    return "".join(
        character if character.isalnum() or character in " _.,:-+=?!" else f"#{ord(character)};"
        for character in safe(text)
    )
