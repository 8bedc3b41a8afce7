"""What a table of an oracle holds: steps, built when a test asks for them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from specfuzz.core.oracle import Step

Row = Callable[[], Step]


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows on which an oracle holds, those that violate it, those to which it doesn't apply; none may be empty."""

    holds: tuple[Row, ...]
    broken: tuple[Row, ...]
    silent: tuple[Row, ...]

    def __post_init__(self) -> None:
        """Refuse a table that lacks a kind."""
        assert self.holds, "no row holds"
        assert self.broken, "no row is violated"
        assert self.silent, "no row is silent"


def rows(*, holds: Row | tuple[Row, ...], broken: Row | tuple[Row, ...], silent: Row | tuple[Row, ...]) -> Rows:
    """A table; a single row may stand without its tuple."""
    return Rows(*(kind if isinstance(kind, tuple) else (kind,) for kind in (holds, broken, silent)))
