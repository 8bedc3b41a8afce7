"""Where text goes, and how wide it may be; colour only on a terminal, never under NO_COLOR."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterable
from typing import TextIO

from rich.console import Console
from rich.text import Text

#: Width of everything that isn't a terminal, so that files and logs are the same everywhere.
PLAIN_WIDTH = 80
#: Wider terminals get tables of this width at most.
MOST_WIDTH = 120


def width_of(stream: TextIO) -> int:
    """Columns to fill on this stream."""
    if not stream.isatty():
        return PLAIN_WIDTH
    return max(40, min(shutil.get_terminal_size((PLAIN_WIDTH, 24)).columns, MOST_WIDTH))


def write(lines: Iterable[Text | str], stream: TextIO | None = None) -> None:
    """Print lines as they are: rich adds colour on a terminal and never re-wraps, so that commands can be pasted."""
    stream = stream or sys.stdout
    colourless = not stream.isatty() or bool(os.environ.get("NO_COLOR"))
    if colourless:
        for line in lines:
            stream.write((line.plain if isinstance(line, Text) else line).rstrip() + "\n")
        stream.flush()
        return
    console = Console(file=stream, width=max(width_of(stream), PLAIN_WIDTH), highlight=False)
    for line in lines:
        console.print(line, soft_wrap=True, markup=False)
