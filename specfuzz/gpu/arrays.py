"""One source for kernels, two faces: numpy 2 on the simulated device, torch on a real one (or where numpy is missing).

The tensors of a scheduler's bookkeeping have a dozen elements. What an operation on them costs is its dispatch, and
numpy's is several times cheaper than torch's; on CUDA there is only torch. Kernels use operators and methods that both
have (`+ * ^ & >> < ==`, `sum`, indexing) and this small vocabulary for the rest. All integers are int64 and wrap.
`SPECFUZZ_ARRAYS=torch` forces the torch face on the CPU, for the tests that compare the two.

On arrays this small numpy's broadcasting costs four times what operands of one shape do, and a row of a table costs
nothing. So what depends on a shape or on a position alone is tabulated once, in full shape.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import torch

try:
    import numpy as np
except ImportError:  # pragma: no cover - a machine with torch alone
    np = None  # type: ignore[assignment]
if not hasattr(np, "vecdot"):  # pragma: no cover - numpy 1, as beside an older torch: too old for this face
    np = None  # type: ignore[assignment]

Array = Any


#: Tables that a face keeps; a search through row widths makes many that are never asked for again.
MOST_KEPT = 64


class _Face:
    """What both faces have in common: tables that are made once and live as long as their face."""

    def __init__(self) -> None:
        self._kept: dict[Any, Any] = {}

    def kept(self, key: Any, make: Callable[[], Any]) -> Any:
        """What `make` returned when the key was new; the oldest one is forgotten when there are too many."""
        found = self._kept.get(key)
        if found is None:
            if len(self._kept) >= MOST_KEPT:
                del self._kept[next(iter(self._kept))]
            found = self._kept[key] = make()
        return found

    def forget(self) -> None:
        """Let go of all of them, as a device does that is closed."""
        self._kept.clear()


class NumpyArrays(_Face):
    """numpy on the host."""

    name = "numpy"

    def constant(self, value: int) -> Array:
        """An operand for arrays of any shape; to convert a Python integer at each use would double the cost."""
        return np.array(value, dtype=np.int64)

    def array(self, values: Sequence[Any]) -> Array:
        """Host integers (nested sequences too) as an int64 array."""
        return np.array(values, dtype=np.int64)

    def shared(self, table: Array) -> Array:
        """The same array, which nobody may write any more: one engine's bug must not reach the tables of the next."""
        table.flags.writeable = False
        return table

    def full(self, shape: tuple[int, ...], value: int) -> Array:
        """A new int64 array that holds `value` everywhere."""
        return _template(shape, value).copy()

    def arange(self, count: int) -> Array:
        """0, 1, ..., count - 1."""
        return np.arange(count, dtype=np.int64)

    def take(self, source: Array, index: Array) -> Array:
        """source[index] of a one-dimensional source; shape of the index."""
        return source.take(index)

    def rows(self, source: Array, index: Array) -> Array:
        """source[index] along the first dimension; an index that can't exist is forced into range."""
        return source.take(index, axis=0, mode="clip")

    def gather(self, source: Array, columns: Array) -> Array:
        """source[i, columns[i, j]]; source (bs, n), columns (bs, m). A column out of range gives some other cell."""
        return source.take(columns + _row_offsets(*source.shape, columns.shape[1]), mode="clip")

    def dot(self, one: Array, other: Array) -> Array:
        """Sum of products along the last dimension; the others broadcast."""
        return np.vecdot(one, other)

    def spread(self, column: Array, lanes: int) -> Array:
        """A (bs,) column side by side with itself, (bs, lanes)."""
        return column.take(_row_numbers(column.shape[0], lanes))

    def not_below_zero(self, x: Array) -> Array:
        """Elementwise max(x, 0)."""
        return np.maximum(x, _ZERO)

    def where(self, condition: Array, yes: Any, no: Any) -> Array:
        """Elementwise choice."""
        return np.where(condition, yes, no)

    def concat(self, parts: Sequence[Array]) -> Array:
        """The parts one after the other, along the first dimension."""
        return np.concatenate(parts)

    def stack(self, columns: Sequence[Array]) -> Array:
        """(bs,) columns side by side as (bs, n)."""
        return np.array(columns).T

    def leading(self, flags: Array) -> Array:
        """How many booleans of each row are true before the first that isn't: (bs,)."""
        fenced = self.full((flags.shape[0], flags.shape[1] + 1), 0)
        fenced[:, :-1] = flags
        return fenced.argmin(1)


class TorchArrays(_Face):
    """torch on one device; see NumpyArrays for the contracts."""

    name = "torch"

    def __init__(self, device: torch.device) -> None:
        """device: where new tensors live."""
        super().__init__()
        self.device = device

    def constant(self, value: int) -> Array:
        """An operand for tensors of any shape: here the integer itself, which needs no transfer."""
        return value

    def array(self, values: Sequence[Any]) -> Array:
        """Host integers as an int64 tensor."""
        return torch.tensor(values, dtype=torch.int64, device=self.device)

    def shared(self, table: Array) -> Array:
        """The same tensor; torch can't forbid to write it."""
        return table

    def full(self, shape: tuple[int, ...], value: int) -> Array:
        """A new int64 tensor that holds `value` everywhere."""
        return torch.full(shape, value, dtype=torch.int64, device=self.device)

    def arange(self, count: int) -> Array:
        """0, 1, ..., count - 1."""
        return torch.arange(count, device=self.device)

    def take(self, source: Array, index: Array) -> Array:
        """source[index] of a one-dimensional source."""
        return source[index]

    def rows(self, source: Array, index: Array) -> Array:
        """source[index] along the first dimension; an index that can't exist is forced into range."""
        return source[index.clamp(0, source.shape[0] - 1)]

    def gather(self, source: Array, columns: Array) -> Array:
        """source[i, columns[i, j]]; a column that can't exist gives some other cell (another one than numpy's)."""
        return source.gather(1, columns.clamp(0, source.shape[1] - 1))

    def dot(self, one: Array, other: Array) -> Array:
        """Sum of products along the last dimension."""
        return (one * other).sum(-1)

    def spread(self, column: Array, lanes: int) -> Array:
        """A (bs,) column side by side with itself, (bs, lanes)."""
        return column[:, None].expand(-1, lanes)

    def not_below_zero(self, x: Array) -> Array:
        """Elementwise max(x, 0)."""
        return x.clamp(min=0)

    def where(self, condition: Array, yes: Any, no: Any) -> Array:
        """Elementwise choice."""
        return torch.where(condition, yes, no)

    def concat(self, parts: Sequence[Array]) -> Array:
        """The parts one after the other."""
        return torch.cat(tuple(parts))

    def stack(self, columns: Sequence[Array]) -> Array:
        """(bs,) columns side by side as (bs, n)."""
        return torch.stack(tuple(columns), 1)

    def leading(self, flags: Array) -> Array:
        """How many booleans of each row are true before the first that isn't."""
        return flags.cumprod(1).sum(1)


Arrays = NumpyArrays | TorchArrays


def host_arrays() -> Arrays:
    """The face of the simulated device: numpy where version 2 is installed, unless SPECFUZZ_ARRAYS says torch."""
    if np is None or os.environ.get("SPECFUZZ_ARRAYS") == "torch":
        return _torch_on_the_host()
    return _numpy()


@lru_cache(maxsize=1)  # one object per face: tables are kept by it
def _numpy() -> NumpyArrays:
    return NumpyArrays()


@lru_cache(maxsize=1)
def _torch_on_the_host() -> TorchArrays:
    return TorchArrays(torch.device("cpu"))


_ZERO = None if np is None else np.array(0, dtype=np.int64)


@lru_cache(maxsize=256)
def _row_numbers(height: int, lanes: int) -> Array:
    return np.repeat(np.arange(height), lanes).reshape(height, lanes)


@lru_cache(maxsize=256)
def _template(shape: tuple[int, ...], value: int) -> Array:
    return np.full(shape, value, dtype=np.int64)


@lru_cache(maxsize=256)
def _row_offsets(height: int, width: int, lanes: int) -> Array:
    return np.repeat(np.arange(height, dtype=np.int64) * width, lanes).reshape(height, lanes)
