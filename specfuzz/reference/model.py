"""The tiny integer-exact model on arrays: weights, and the kernels of the target side (see core.language).

All cells are int64 and all arithmetic wraps, so numpy, torch on a CPU and torch on CUDA agree bit for bit. Kernels read
a row's cells beyond its length too and weigh them with 0, as a masked attention does. Positions that can't exist (a
wrong length, a garbage relay value) are clipped into the table: a bookkeeping bug must show as wrong content, not as an
IndexError.
"""

from __future__ import annotations

from specfuzz.core.language import MIX_A, STOP_TOKEN, TOKEN_MASK, TOKEN_SHIFT
from specfuzz.gpu.arrays import Array, Arrays
from specfuzz.gpu.races import Access

#: Up to this row width the masked weights of every length are tabulated; a wider row computes them each time.
_TABULATED = 1024


class Weights:
    """Positions of one row width on the device, and the vocabulary to compute with. All int64; kernels only read it.

    positions: (width,) 0, 1, ...: also layer 1's weights. reduction: (width,) = positions + 1: layer 2's weights.
    one: the operand 1.
    """

    __slots__ = (
        "_digest_below", "_lanes_below", "_mix_a", "_reduction_below", "_token_mask", "_token_shift", "_windows",
        "arrays", "one", "positions", "reduction", "width",
    )  # fmt: skip

    def __init__(self, width: int, arrays: Arrays) -> None:
        """width: cells of one req_to_token row."""
        self.arrays = arrays
        self.width = width
        self.one, self._mix_a = arrays.constant(1), arrays.constant(MIX_A)
        self._token_shift, self._token_mask = arrays.constant(TOKEN_SHIFT), arrays.constant(TOKEN_MASK)
        self.positions = arrays.shared(arrays.arange(width))
        self.reduction = arrays.shared(self.positions + 1)
        self._digest_below = self._reduction_below = None
        self._windows: dict[int, Array] = {}
        self._lanes_below: dict[int, Array] = {}
        if width <= _TABULATED:
            below = self.positions < arrays.arange(width + 1)[:, None]
            self._digest_below = arrays.shared(self.positions * below)
            self._reduction_below = arrays.shared(self.reduction * below)

    def mix(self, a: Array, b: Array) -> Array:
        """Elementwise int64 hash of two int64 arrays; equals `language.mix`."""
        return self._stir(b + a * self._mix_a)

    def unembed(self, reduction: Array) -> Array:
        """Token ids that follow layer-2 reductions; equals `language.unembed`."""
        return self.token_bits(self._stir(reduction))

    def token_bits(self, x: Array) -> Array:
        """The bits of a hash that a token or a choice is made of."""
        return (x >> self._token_shift) & self._token_mask

    def _stir(self, x: Array) -> Array:
        return x * (x | self.one)

    def digest_below(self, lens: Array) -> Array:
        """Layer 1's weights with those at or above the length set to 0: (*lens.shape, width)."""
        if self._digest_below is None:
            return self.positions * (self.positions < lens[..., None])
        return self.arrays.rows(self._digest_below, lens)

    def reduction_below(self, lens: Array) -> Array:
        """Layer 2's weights, likewise."""
        if self._reduction_below is None:
            return self.reduction * (self.positions < lens[..., None])
        return self.arrays.rows(self._reduction_below, lens)

    def window(self, base: Array, lanes: int) -> Array:
        """Positions [base, base + lanes) of every row, (bs, lanes); a base that can't exist is forced into the row."""
        table = self._windows.get(lanes)
        if table is None:
            xp = self.arrays
            table = self._windows[lanes] = xp.shared(xp.arange(self.width + 1)[:, None] + xp.arange(lanes))
        return self.arrays.rows(table, base)

    def lanes_below(self, last: Array, lanes: int) -> Array:
        """1 on the lanes below `last` of every row, else 0: (bs, lanes)."""
        table = self._lanes_below.get(lanes)
        if table is None:
            xp = self.arrays
            below = xp.arange(lanes) < xp.arange(lanes + 1)[:, None]
            table = self._lanes_below[lanes] = xp.shared(below * xp.array([1]))
        return self.arrays.rows(table, last)


def weights_of(width: int, arrays: Arrays) -> Weights:
    """The weights of that width, made once per face."""
    found: Weights = arrays.kept((Weights, width), lambda: Weights(width, arrays))
    return found


def plan_kernel(
    access: Access, weights: Weights, req_to_token: Array, kv_indices: Array, rows: list[int], row_ids: Array
) -> None:
    """Attention metadata: copy the rows of the batch out of the shared table, once per forward.

    req_to_token: (rows + 1, width) int64, shared. kv_indices: (bs, width) int64, private to this forward.
    row_ids: (bs,). After this operation the forward reads no shared row any more.
    """
    access.read(req_to_token, rows)
    kv_indices[...] = weights.arrays.rows(req_to_token, row_ids)


def window_forward(
    access: Access,
    weights: Weights,
    target_v1: Array,
    target_v2: Array,
    kv_indices: Array,
    base: Array,
    tokens: Array,
    out_cache_loc: Array | None,
) -> tuple[Array, Array]:
    """Target forward over a window of E tokens per row that starts at `base`; writes E cells, attends through the row.

    target_v1, target_v2: (slots,) int64, one per layer. kv_indices: (bs, width). base: (bs,) first position. tokens:
    (bs, E). out_cache_loc: (bs, E) slots to write, padding lanes name slot 0; None: the row's own slots.
    Returns (reductions O by window position (bs, E), window positions (bs, E)).
    """
    xp = weights.arrays
    positions = weights.window(base, tokens.shape[1])
    written = xp.gather(kv_indices, positions) if out_cache_loc is None else out_cache_loc
    for layer in (target_v1, target_v2):
        access.read(layer, kv_indices)
        access.write(layer, written)

    v1 = weights.mix(tokens, positions)
    target_v1[written] = v1
    # Every lane attends through the whole row: to the prefix, and to the lanes of its window below it.
    digest = xp.dot(xp.take(target_v1, kv_indices)[:, None], weights.digest_below(positions))
    target_v2[written] = weights.mix(v1, digest)
    through = weights.reduction_below(positions + weights.one)
    return xp.dot(xp.take(target_v2, kv_indices)[:, None], through), positions


def verify_kernel(
    access: Access,
    weights: Weights,
    target_v1: Array,
    target_v2: Array,
    kv_indices: Array,
    seq_lens: Array,
    verify_tokens: Array,
    stop_positions: list[int],
    next_token_ids: Array,
    accept_lens: Array,
    new_seq_lens: Array,
    bonus_tokens: Array,
    hidden_states: Array,
    only_stop: list[list[int]] | None = None,
) -> None:
    """Target verify of [bonus, S drafts] at C..C+S, then the greedy accept of a chain.

    seq_lens: (bs,) = C. verify_tokens: (bs, K). only_stop: (bs, K) 1 where a grammar lets nothing else follow. Written:
    next_token_ids (bs, K), accept_lens (bs,) incl. the bonus, new_seq_lens (bs,) = C + accept, bonus_tokens (bs,),
    hidden_states (bs,) = O at the last accepted position.
    """
    xp = weights.arrays
    access.read(seq_lens, None)
    reductions, positions = window_forward(
        access, weights, target_v1, target_v2, kv_indices, seq_lens, verify_tokens, None
    )
    predicted = weights.unembed(reductions)
    if max(stop_positions) >= 0:
        predicted = xp.where(positions + 1 == xp.array(stop_positions)[:, None], STOP_TOKEN, predicted)
    if only_stop is not None:
        predicted = xp.where(xp.array(only_stop) == 1, STOP_TOKEN, predicted)
    right = xp.leading(predicted[:, :-1] == verify_tokens[:, 1:])
    last = right[:, None]
    next_token_ids[...] = predicted
    accept_lens[...] = right + weights.one
    for result in (next_token_ids, accept_lens, new_seq_lens):  # what other streams read
        access.write(result, None)
    new_seq_lens[...] = seq_lens + accept_lens
    bonus_tokens[...] = xp.gather(predicted, last)[:, 0]
    hidden_states[...] = xp.gather(reductions, last)[:, 0]


def extend_kernel(
    access: Access,
    weights: Weights,
    target_v1: Array,
    target_v2: Array,
    kv_indices: Array,
    seq_lens: Array,
    input_ids: Array,
    out_cache_loc: Array,
    extend_lens: list[int],
    stop_positions: list[int],
    next_token_ids: Array | None,
    hidden_states: Array,
    only_stop: list[int] | None = None,
) -> None:
    """Target extend (also plain decode, where every row extends by 1): window [seq_len - extend_len, seq_len).

    input_ids, out_cache_loc: flat, sum(extend_lens). only_stop: (bs,) 1 where a grammar lets nothing else follow.
    Written: hidden_states (bs,) = O at the end, next_token_ids (bs,) unless it is None: then somebody samples later.
    """
    xp = weights.arrays
    access.read(seq_lens, None)
    tokens, locs = pad_windows(xp, input_ids, extend_lens), pad_windows(xp, out_cache_loc, extend_lens)
    lens = xp.array(extend_lens)
    reductions, _ = window_forward(access, weights, target_v1, target_v2, kv_indices, seq_lens - lens, tokens, locs)
    final = xp.gather(reductions, lens[:, None] - 1)[:, 0]
    hidden_states[...] = final
    if next_token_ids is not None:
        sample_kernel(access, weights, seq_lens, final, stop_positions, only_stop, next_token_ids)


def sample_kernel(
    access: Access,
    weights: Weights,
    seq_lens: Array,
    hidden_states: Array,
    stop_positions: list[int],
    only_stop: list[int] | None,
    next_token_ids: Array,
) -> None:
    """The token behind each row; seq_lens, hidden_states: (bs,). only_stop: as for the extend. Written: (bs,)."""
    xp = weights.arrays
    sampled = weights.unembed(hidden_states)
    if max(stop_positions) >= 0:
        sampled = xp.where(seq_lens == xp.array(stop_positions), STOP_TOKEN, sampled)
    if only_stop is not None:
        sampled = xp.where(xp.array(only_stop) == 1, STOP_TOKEN, sampled)
    next_token_ids[...] = sampled
    access.write(next_token_ids, None)  # other streams read it


def pad_windows(xp: Arrays, flat: Array, lens: list[int]) -> Array:
    """A flat concatenation of windows as (bs, longest window), padded with 0 on the right."""
    if len(lens) == 1:
        return flat[None, :]
    longest = max(lens)
    if longest == 1:
        return flat[:, None]
    padded, start = xp.full((len(lens), longest), 0), 0
    for row, length in enumerate(lens):
        padded[row, :length] = flat[start : start + length]
        start += length
    return padded
