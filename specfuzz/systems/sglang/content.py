"""The KV payload of the fake model: integer cells by slot, and the toy model that reads them through the row table.

The arithmetic is that of `specfuzz.core.language`, vectorised with numpy (int64 wraps). Target and draft side have
pools of their own, indexed with the same slot ids. Whatever the engine got wrong about slots, rows, lengths or
relayed state shows as wrong text, because nothing here looks at anything but cells, tokens and positions.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from specfuzz.core import language
from specfuzz.core.language import MIX_A, STOP_TOKEN, TOKEN_MASK, TOKEN_SHIFT

Ints = npt.NDArray[np.int64]

_A = np.int64(MIX_A)


def mix(left: Ints, right: Ints) -> Ints:
    """`language.mix` on arrays; both need a dimension (numpy warns when a scalar wraps)."""
    return _stir(left * _A + right)


def unembed(reduction: Ints) -> Ints:
    """`language.unembed` on an array."""
    return (_stir(reduction) >> TOKEN_SHIFT) & TOKEN_MASK


def _stir(x: Ints) -> Ints:
    return x * (x | 1)


@dataclass(slots=True)
class Window:
    """One row's share of one target forward. All arrays are numpy int64.

    start: first position. tokens: token ids from there. loc: slots that they are written to (`out_cache_loc`).
    cells: slots that attention spans, the tokens' own last, as the row table names them: those of positions
    [0, start + len(tokens)) if the batch's lengths fit each other. stops: armed absolute positions.
    """

    start: int
    tokens: Ints
    loc: Ints
    cells: Ints
    stops: frozenset[int]


class ToyModel:
    """Cells of both sides plus the forwards that write and read them."""

    def __init__(self, num_slots: int, row_width: int, *, draft: bool) -> None:
        """num_slots: slots incl. the padding page. row_width: longest row. draft: whether a draft pool exists."""
        self.target_v1: Ints = np.zeros(num_slots, dtype=np.int64)
        self.target_v2: Ints = np.zeros(num_slots, dtype=np.int64)
        self.draft_v1: Ints | None = np.zeros(num_slots, dtype=np.int64) if draft else None
        self.writes = 0  # grows with every write, so that an observer can tell "unchanged"
        self._positions: Ints = np.arange(row_width + 1, dtype=np.int64)
        self._weight1: Ints = self._positions
        self._weight2: Ints = self._positions + 1

    # ------------------------------------------------------------------ target
    def target_forward(self, windows: list[Window]) -> list[tuple[Ints, Ints]]:
        """Run one target forward; returns by row (reductions O, following tokens) for each position of the window.

        Layer by layer over all rows, as a real forward does: a slot that two rows share holds the later row's cell.
        """
        self.writes += 1
        first = []
        for window in windows:
            v1 = mix(window.tokens, self._span(window.start, len(window.tokens)))
            self.target_v1[window.loc] = v1
            first.append(v1)
        for window, v1 in zip(windows, first, strict=True):
            end = len(window.cells)
            base = end - len(window.tokens)
            sums = np.cumsum(self._weight1[:end] * self.target_v1[window.cells])
            digest = np.zeros(len(window.tokens), dtype=np.int64)
            skip = 1 if base == 0 else 0  # nothing lies before position 0
            digest[skip:] = sums[base + skip - 1 : end - 1]
            self.target_v2[window.loc] = mix(v1, digest)
        results = []
        for window in windows:
            end = len(window.cells)
            base = end - len(window.tokens)
            reductions = np.cumsum(self._weight2[:end] * self.target_v2[window.cells])[base:]
            results.append((reductions, self._following(reductions, window)))
        return results

    def _span(self, start: int, count: int) -> Ints:
        start = min(max(start, 0), len(self._positions) - count)  # a wrong length must show as wrong content
        return self._positions[start : start + count]

    @staticmethod
    def _following(reductions: Ints, window: Window) -> Ints:
        tokens = unembed(reductions)
        for position in window.stops:
            index = position - 1 - window.start
            if 0 <= index < len(tokens):
                tokens[index] = STOP_TOKEN
        return tokens

    # ------------------------------------------------------------------ draft
    def draft_extend(self, loc: Ints, start: int, following: Ints) -> None:
        """Write draft cells of positions [start, start + len(following)): each holds v1 of the token after its own.

        loc: their slots.
        """
        assert self.draft_v1 is not None
        self.writes += 1
        self.draft_v1[loc] = mix(following, self._span(start + 1, len(following)))

    def draft_step(self, cells: Ints, position: int, token: int, reduction: int) -> int:
        """Consume `token` at `position`: write its draft cell at position - 1, attend, return O(position).

        cells: slots of the row. reduction: O(position - 1). The digest comes from draft cells [0, position - 1).
        """
        assert self.draft_v1 is not None
        self.writes += 1
        self.draft_v1[cells[position - 1]] = language.mix(token, position)
        return self.draft_reduction(cells, position, token, reduction)

    def draft_reduction(self, cells: Ints, position: int, token: int, reduction: int) -> int:
        """O(position) from O(position - 1), the token and draft cells [0, position - 1), written before."""
        assert self.draft_v1 is not None
        # One value per row: Python integers beat numpy here, and `language` is their exact definition.
        digest = int((self._weight1[1:position] * self.draft_v1[cells[: position - 1]]).sum())
        v2 = language.mix(language.mix(token, position), digest)
        return language.wrap(reduction + language.layer2_weight(position) * v2)
