"""The tiny integer-exact model on arrays: the kernels of target and draft side (see core.language for the formulas).

All cells are int64 and all arithmetic wraps, so numpy, torch on a CPU and torch on CUDA agree bit for bit. Kernels read
a row's cells beyond its length too and weigh them with 0, as a masked attention does. Positions that can't exist (a
wrong length, a garbage relay value) are clipped into the table: a bookkeeping bug must show as wrong content, not as an
IndexError.
"""

from __future__ import annotations

from specfuzz.core.language import FLIP_BIT, MIX_A, STOP_TOKEN, TOKEN_MASK, TOKEN_SHIFT
from specfuzz.gpu.arrays import Array, Arrays
from specfuzz.gpu.races import Access

#: Up to this row width the masked weights of every length are tabulated; a wider row computes them each time.
_TABULATED = 1024


class Weights:
    """Positions of one row width on the device, and the vocabulary to compute with. All int64.

    positions: (width,) 0, 1, ...: also layer 1's weights. reduction: (width,) = positions + 1: layer 2's weights.
    """

    __slots__ = ("_digest_below", "_reduction_below", "arrays", "positions", "reduction", "width")

    def __init__(self, width: int, arrays: Arrays) -> None:
        """width: cells of one req_to_token row."""
        self.arrays = arrays
        self.width = width
        self.positions = arrays.arange(width)
        self.reduction = self.positions + 1
        self._digest_below = self._reduction_below = None
        if width <= _TABULATED:
            below = self.positions < arrays.arange(width + 1)[:, None]
            self._digest_below, self._reduction_below = self.positions * below, self.reduction * below

    def digest_below(self, lens: Array) -> Array:
        """Layer 1's weights with those at or above the row's length set to 0: (bs, width)."""
        if self._digest_below is None:
            return self.positions * (self.positions < lens[:, None])
        return self.arrays.rows(self._digest_below, lens)

    def reduction_below(self, lens: Array) -> Array:
        """Layer 2's weights, likewise."""
        if self._reduction_below is None:
            return self.reduction * (self.positions < lens[:, None])
        return self.arrays.rows(self._reduction_below, lens)


def _stir(x: Array) -> Array:
    return x * (x | 1)


def mix(a: Array, b: Array) -> Array:
    """Elementwise int64 hash of two int64 arrays; equals `language.mix`."""
    return _stir(b + a * MIX_A)


def unembed(reduction: Array) -> Array:
    """Token ids that follow layer-2 reductions; equals `language.unembed`."""
    return (_stir(reduction) >> TOKEN_SHIFT) & TOKEN_MASK


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
    positions = base[:, None] + weights.positions[: tokens.shape[1]]
    window = xp.gather(kv_indices, positions)
    written = window if out_cache_loc is None else out_cache_loc
    for layer in (target_v1, target_v2):
        access.read(layer, kv_indices)
        access.write(layer, written)

    below = (xp.take(target_v1, kv_indices) * weights.digest_below(base)).sum(1)
    v1 = mix(tokens, positions)
    target_v1[written] = v1
    weighted = xp.take(target_v1, window) * positions
    digest = below[:, None] + (weighted.cumsum(1) - weighted)

    below = (xp.take(target_v2, kv_indices) * weights.reduction_below(base)).sum(1)
    target_v2[written] = mix(v1, digest)
    return below[:, None] + (xp.take(target_v2, window) * (positions + 1)).cumsum(1), positions


def draft_kernel(
    access: Access,
    weights: Weights,
    draft_kv: Array,
    kv_indices: Array,
    seq_lens: Array,
    bonus_tokens: Array,
    topk_index: Array,
    hidden: Array,
    stop_positions: list[int],
    flip_at: list[int],
    verify_tokens: Array,
    digest_out: Array,
) -> None:
    """Propose a chain of S tokens per row from the draft state alone; proposal number flip_at[row] is made wrong.

    draft_kv: (slots,) int64; cells [C, C + S) of the row become scratch. seq_lens: (bs,) = C. bonus_tokens, topk_index,
    hidden: (bs,) relayed. flip_at: 1-based proposal that is flipped, 0 none. verify_tokens: (bs, S + 1) int64, written:
    the bonus, then the proposals. digest_out: (bs,) written: D(C + 1), for the draft-extend of this round.
    """
    xp, steps = weights.arrays, verify_tokens.shape[1] - 1
    access.read(draft_kv, kv_indices)
    digest = (xp.take(draft_kv, kv_indices) * weights.reduction_below(seq_lens)).sum(1)
    digest_out[...] = digest
    stops = xp.array(stop_positions) if max(stop_positions) >= 0 else None
    tokens, reduction, cells = topk_index, hidden, []
    verify_tokens[:, 0] = bonus_tokens
    position = seq_lens
    for step in range(1, steps + 1):
        position = position + 1
        if stops is not None:
            tokens = xp.where(position == stops, STOP_TOKEN, tokens)
        if step in flip_at:
            tokens = tokens ^ xp.array([FLIP_BIT if at == step else 0 for at in flip_at])
        verify_tokens[:, step] = tokens
        v1 = mix(tokens, position)
        cells.append(v1)
        if step < steps:
            reduction = reduction + (position + 1) * mix(v1, digest)
            digest = digest + position * v1
            tokens = unembed(reduction)
    scratch = xp.gather(kv_indices, seq_lens[:, None] + weights.positions[:steps])
    draft_kv[scratch] = xp.stack(cells)
    access.write(draft_kv, scratch)


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
) -> None:
    """Target verify of [bonus, S drafts] at C..C+S, then the greedy accept of a chain.

    seq_lens: (bs,) = C. verify_tokens: (bs, K). Written: next_token_ids (bs, K), accept_lens (bs,) incl. the bonus,
    new_seq_lens (bs,) = C + accept, bonus_tokens (bs,), hidden_states (bs,) = O at the last accepted position.
    """
    xp = weights.arrays
    access.read(seq_lens, None)
    reductions, positions = window_forward(
        access, weights, target_v1, target_v2, kv_indices, seq_lens, verify_tokens, None
    )
    predicted = unembed(reductions)
    if max(stop_positions) >= 0:
        predicted = xp.where(positions + 1 == xp.array(stop_positions)[:, None], STOP_TOKEN, predicted)
    right = xp.cumprod(predicted[:, :-1] == verify_tokens[:, 1:]).sum(1)
    last = right[:, None]
    next_token_ids[...] = predicted
    accept_lens[...] = right + 1
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
    next_token_ids: Array,
    hidden_states: Array,
) -> None:
    """Target extend (also plain decode, where every row extends by 1): window [seq_len - extend_len, seq_len).

    input_ids, out_cache_loc: flat, sum(extend_lens). Written: next_token_ids (bs,), hidden_states (bs,) = O at the end.
    """
    xp = weights.arrays
    access.read(seq_lens, None)
    tokens, locs = pad_windows(xp, input_ids, extend_lens), pad_windows(xp, out_cache_loc, extend_lens)
    lens = xp.array(extend_lens)
    reductions, _ = window_forward(access, weights, target_v1, target_v2, kv_indices, seq_lens - lens, tokens, locs)
    final = xp.gather(reductions, lens[:, None] - 1)[:, 0]
    sampled = unembed(final)
    if max(stop_positions) >= 0:
        sampled = xp.where(seq_lens == xp.array(stop_positions), STOP_TOKEN, sampled)
    next_token_ids[...] = sampled
    access.write(next_token_ids, None)  # other streams read it
    hidden_states[...] = final


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


def draft_after_verify_kernel(
    access: Access,
    weights: Weights,
    draft_kv: Array,
    kv_indices: Array,
    seq_lens: Array,
    digest: Array,
    next_token_ids: Array,
    accept_lens: Array,
    hidden_in: Array,
    topk_index: Array,
    hidden_out: Array,
) -> None:
    """Draft-extend over the whole verify window (padded width), reading the row of the last accepted node.

    digest: (bs,) D(C + 1) that the draft of this round has read. Lanes past the accept are overwritten next round.
    """
    xp = weights.arrays
    positions = seq_lens[:, None] + weights.positions[: next_token_ids.shape[1]]
    window = xp.gather(kv_indices, positions)
    _draft_extend(
        access, weights, draft_kv, window, positions, digest, next_token_ids, accept_lens[:, None] - 1, hidden_in,
        topk_index, hidden_out,
    )  # fmt: skip


def draft_prefill_kernel(
    access: Access,
    weights: Weights,
    draft_kv: Array,
    kv_indices: Array,
    seq_lens: Array,
    input_ids: Array,
    extend_lens: list[int],
    next_prompt_tokens: list[int],
    next_token_ids: Array,
    hidden_in: Array,
    topk_index: Array,
    hidden_out: Array,
) -> None:
    """Draft-extend over the extend window: a position is followed by the next input id, the last by the sampled one.

    next_prompt_tokens: by row the prompt token behind a middle chunk, which stands for the sampled one; -1 elsewhere.
    """
    xp = weights.arrays
    if max(next_prompt_tokens) >= 0:
        given = xp.array(next_prompt_tokens)
        next_token_ids = xp.where(given >= 0, given, next_token_ids)
    lens = xp.array(extend_lens)
    tokens, base = pad_windows(xp, input_ids, extend_lens), seq_lens - lens
    lanes = weights.positions[: tokens.shape[1]]
    last = lens[:, None] - 1
    following = xp.where(lanes == last, next_token_ids[:, None], _shifted_left(xp, tokens))
    positions = base[:, None] + lanes
    # Padding lanes write to slot 0.
    window = xp.gather(kv_indices, positions) * (lanes <= last)
    access.read(draft_kv, kv_indices)
    digest = (xp.take(draft_kv, kv_indices) * weights.reduction_below(base)).sum(1)
    _draft_extend(
        access, weights, draft_kv, window, positions, digest, following, last, hidden_in, topk_index, hidden_out
    )


def _shifted_left(xp: Arrays, tokens: Array) -> Array:
    shifted = xp.full(tuple(tokens.shape), 0)
    shifted[:, :-1] = tokens[:, 1:]
    return shifted


def _draft_extend(
    access: Access,
    weights: Weights,
    draft_kv: Array,
    window: Array,
    positions: Array,
    digest: Array,
    following: Array,
    last: Array,
    hidden_in: Array,
    topk_index: Array,
    hidden_out: Array,
) -> None:
    """Write the draft cells of a window and consume the token behind its lane `last` (bs, 1): the pending bonus.

    following: (bs, E) the token after each window position. digest: (bs,) D(first position + 1). hidden_in: (bs,)
    target O at lane `last`. Written: topk_index (bs,), hidden_out (bs,) = the draft's O after the bonus.
    """
    xp = weights.arrays
    ahead = positions + 1
    cells = mix(following, ahead)
    draft_kv[window] = cells
    access.write(draft_kv, window)
    weighted = cells * ahead
    digests = digest[:, None] + (weighted.cumsum(1) - weighted)
    v2 = mix(xp.gather(cells, last), xp.gather(digests, last))
    reduction = hidden_in + ((xp.gather(ahead, last) + 1) * v2)[:, 0]
    hidden_out[...] = reduction
    topk_index[...] = unembed(reduction)
