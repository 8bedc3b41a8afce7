"""The draft side of the tiny model on arrays: a chain of proposals, and the extends that keep its KV true.

Cell i of the draft's KV stands for the token at i + 1; see core.language. As in `model`, int64 that wraps, and no
control flow that depends on device data. Trees draft with `model_tree` and extend with what is here.
"""

from __future__ import annotations

from specfuzz.core.language import FLIP_BIT, STOP_TOKEN
from specfuzz.gpu.arrays import Array, Arrays
from specfuzz.gpu.races import Access
from specfuzz.reference.model import Weights, pad_windows


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
    digest = xp.dot(xp.take(draft_kv, kv_indices), weights.reduction_below(seq_lens))
    digest_out[...] = digest
    stops = xp.array(stop_positions) if max(stop_positions) >= 0 else None
    tokens, reduction, cells = topk_index, hidden, []
    verify_tokens[:, 0] = bonus_tokens
    position = seq_lens + weights.one
    for step in range(1, steps + 1):
        if stops is not None:
            tokens = xp.where(position == stops, STOP_TOKEN, tokens)
        if step in flip_at:
            tokens = tokens ^ xp.array([FLIP_BIT if at == step else 0 for at in flip_at])
        verify_tokens[:, step] = tokens
        v1 = weights.mix(tokens, position)
        cells.append(v1)
        if step < steps:
            ahead = position + weights.one
            reduction = reduction + ahead * weights.mix(v1, digest)
            digest = digest + position * v1
            tokens, position = weights.unembed(reduction), ahead
    scratch = xp.gather(kv_indices, weights.window(seq_lens, steps))
    draft_kv[scratch] = xp.stack(cells)
    access.write(draft_kv, scratch)


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
    positions = weights.window(seq_lens, next_token_ids.shape[1])
    window = xp.gather(kv_indices, positions)
    _draft_extend(
        access, weights, draft_kv, window, positions, digest, next_token_ids, accept_lens - weights.one, hidden_in,
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
    last = lens - weights.one
    following = xp.where(lanes == last[:, None], next_token_ids[:, None], _shifted_left(xp, tokens))
    positions = weights.window(base, tokens.shape[1])
    # Padding lanes write to slot 0.
    window = xp.gather(kv_indices, positions) * weights.lanes_below(lens, tokens.shape[1])
    access.read(draft_kv, kv_indices)
    digest = xp.dot(xp.take(draft_kv, kv_indices), weights.reduction_below(base))
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
    """Write the draft cells of a window and consume the token behind its lane `last` (bs,): the pending bonus.

    following: (bs, E) the token after each window position. digest: (bs,) D(first position + 1). hidden_in: (bs,)
    target O at lane `last`. Written: topk_index (bs,), hidden_out (bs,) = the draft's O after the bonus.
    """
    xp = weights.arrays
    ahead = positions + weights.one
    cells = weights.mix(following, ahead)
    draft_kv[window] = cells
    access.write(draft_kv, window)
    below = xp.dot(cells * weights.lanes_below(last, cells.shape[1]), ahead)
    v2 = weights.mix(xp.gather(cells, last[:, None])[:, 0], digest + below)
    reduction = hidden_in + (positions[:, 0] + last + 2) * v2
    hidden_out[...] = reduction
    topk_index[...] = weights.unembed(reduction)
