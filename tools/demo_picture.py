"""Writes docs/demo.svg, the picture in the README: the demo is run once and its terminal output is rendered.

The SVG names no font file and no address; a viewer uses its own monospaced font.
"""

import io
import sys
import tempfile
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.text import Text

from tools.demo import ROOT, DemoFailed, Place, play

TARGET: Final = ROOT / "docs" / "demo.svg"
WIDTH_COLUMNS: Final = 72
TEMPLATE: Final = """\
<svg viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg" role="img" aria-label="The output of make demo">
<style>
.{unique_id}-matrix {{ font-family: ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace;
  font-size: {char_height}px; line-height: {line_height}px; }}
.{unique_id}-title {{ font-family: sans-serif; font-size: 18px; font-weight: bold; }}
{styles}
</style>
<defs>
<clipPath id="{unique_id}-clip-terminal"><rect width="{terminal_width}" height="{terminal_height}" /></clipPath>
{lines}
</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix" xml:space="preserve">
{matrix}
</g>
</g>
</svg>
"""


def main() -> int:
    """Runs the demo and writes its picture. Returns 1 if the demo fails."""
    console = Console(file=io.StringIO(), record=True, width=WIDTH_COLUMNS, highlight=False, force_terminal=True)
    console.print(Text.assemble(("$ ", "green"), "make demo"))
    with tempfile.TemporaryDirectory(prefix="demo-") as folder:
        try:
            play(console, Place(Path(folder)))
        except DemoFailed as error:
            sys.stderr.write(f"the demo failed: {error}\n")
            return 1
    picture = console.export_svg(title="Holdfast", code_format=TEMPLATE, unique_id="demo")
    TARGET.write_text("\n".join(line.rstrip() for line in picture.splitlines()) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
