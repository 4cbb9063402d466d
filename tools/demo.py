"""``make demo``: the examples of the design documents, explained by the command itself."""

from rich.console import Console

from holdfast.cli.explain import explanation_of

FOX = "ate,brown,fox,jumped,quick,slept"
EXAMPLES = [
    ("999000000000000", None),
    ("799000000000000", None),
    ("889000001000001", None),
    ("888000002000002", None),
    ("968969000000000", FOX),
    ("366663000000000", FOX),
    ("566366000000000", FOX),
    ("766366000000000", FOX),
    ("36636146636626", FOX),
]


def main() -> None:
    console = Console(highlight=False)
    for digits, activities in EXAMPLES:
        option = f" --activities {activities}" if activities else ""
        console.print(f"\n[bold cyan]$ holdfast explain {digits}{option}[/]", soft_wrap=True)
        explanation_of(digits, activities).show(console)


if __name__ == "__main__":
    main()
