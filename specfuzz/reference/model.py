"""The tiny integer-exact model on tensors: the kernels of target and draft side (see core.language for the formulas).

All cells are int64 and all arithmetic wraps, so cpu and cuda agree bit for bit. Positions that can't exist (a wrong
length, a garbage relay value) are clamped into the row: a bookkeeping bug must show as wrong content, not as an
IndexError.
"""

from __future__ import annotations

import torch

from specfuzz.core.language import FLIP_BIT, MIX_A, MIX_B, MIX_C, STOP_TOKEN, TOKEN_MASK, UNEMBED_SALT
from specfuzz.gpu.races import Access

Tensor = torch.Tensor


class Weights:
    """Position weights and ranges of one row width, on the device. All int64, shape (width + 1,) unless said otherwise."""

    __slots__ = ("digest", "draft_digest", "positions", "reduction", "width")

    def __init__(self, width: int, device: torch.device) -> None:
        """width: cells of one req_to_token row."""
        self.width = width
        self.positions = torch.arange(width, device=device)  # (width,)
        self.reduction = torch.arange(width + 1, device=device) * 2 + 1
        self.digest = self.reduction.clone()
        self.digest[0] = 0
        self.draft_digest = self.digest[1:].contiguous()  # (width,): draft cell i stands for the token at i + 1


def mix(a: Tensor, b: Tensor) -> Tensor:
    """Elementwise int64 hash of two int64 tensors; equals `language.mix`."""
    x = torch.add(a * MIX_A, b, alpha=MIX_B)
    x ^= x >> 32
    x *= MIX_C
    x ^= x >> 29
    return x


_SALT = torch.tensor(UNEMBED_SALT)


def unembed(reduction: Tensor) -> Tensor:
    """Token ids that follow layer-2 reductions; equals `language.unembed`."""
    return mix(reduction, _SALT.to(reduction.device)) & TOKEN_MASK


def with_stop(tokens: Tensor, positions: Tensor, stop_positions: Tensor) -> Tensor:
    """The tokens, with the stop token where the position is the row's armed stop. stop_positions: broadcastable, -1 none."""
    return torch.where(positions == stop_positions, STOP_TOKEN, tokens)


def plan_kernel(access: Access, req_to_token: Tensor, kv_indices: Tensor, rows: list[int], row_ids: Tensor) -> None:
    """Attention metadata: copy the rows of the batch out of the shared table, once per forward.

    req_to_token: (rows + 1, width) int64, shared. kv_indices: (bs, width) int64, private to this forward. row_ids: (bs,).
    After this operation the forward reads no shared row any more.
    """
    access.read(req_to_token, rows)
    torch.index_select(req_to_token, 0, row_ids, out=kv_indices)


def window_forward(
    access: Access,
    target_kv: Tensor,
    kv_indices: Tensor,
    weights: Weights,
    base: Tensor,
    tokens: Tensor,
    out_cache_loc: Tensor | None,
) -> tuple[Tensor, Tensor]:
    """Target forward over a window of E tokens per row that starts at `base`; writes E cells, attends through the row.

    target_kv: (slots, 2) int64. kv_indices: (bs, width). base: (bs,) first position. tokens: (bs, E).
    out_cache_loc: (bs, E) slots to write, padding lanes name slot 0; None: the row's own slots.
    Returns (reductions O by window position (bs, E), window positions (bs, E)).
    """
    width, lanes = weights.width, tokens.shape[1]
    positions = base.unsqueeze(1) + weights.positions[:lanes]
    columns = positions.clamp(0, width - 1)
    window = kv_indices.gather(1, columns)
    written = window if out_cache_loc is None else out_cache_loc
    v1 = mix(tokens, positions)
    target_kv[written, 0] = v1
    before = weights.positions < base.unsqueeze(1)
    prefix = target_kv[kv_indices]
    digest_weights, reduction_weights = weights.digest[columns], weights.reduction[columns]
    below_digest = (prefix[:, :, 0] * (weights.digest[:width] * before)).sum(1, keepdim=True)
    below_reduction = (prefix[:, :, 1] * (weights.reduction[:width] * before)).sum(1, keepdim=True)
    weighted = target_kv[window, 0] * digest_weights
    digest = below_digest + weighted.cumsum(1) - weighted
    target_kv[written, 1] = mix(v1, digest)
    reductions = below_reduction + (target_kv[window, 1] * reduction_weights).cumsum(1)
    access.write(target_kv, written)
    access.read(target_kv, _prefix_slots(kv_indices, base, width))
    return reductions, positions


def _prefix_slots(kv_indices: Tensor, base: Tensor, width: int) -> list[int]:
    slots: list[int] = []
    for row, length in zip(kv_indices.tolist(), base.tolist(), strict=True):
        slots += row[: min(max(length, 0), width)]
    return slots


def draft_kernel(
    access: Access,
    draft_kv: Tensor,
    kv_indices: Tensor,
    weights: Weights,
    seq_lens: Tensor,
    bonus_tokens: Tensor,
    topk_index: Tensor,
    hidden: Tensor,
    stop_positions: list[int],
    flip_at: list[int],
    verify_tokens: Tensor,
) -> None:
    """Propose a chain of S tokens per row from the draft state alone; proposal number flip_at[row] is made wrong.

    draft_kv: (slots,) int64; cells [C, C + S) of the row become scratch. seq_lens: (bs,) = C. bonus_tokens, topk_index,
    hidden: (bs,) relayed. flip_at: 1-based proposal that is flipped, 0 none. verify_tokens: (bs, S + 1) int64, written:
    the bonus, then the proposals.
    """
    width, steps = weights.width, verify_tokens.shape[1] - 1
    stop, flip = torch.tensor([stop_positions, flip_at], device=seq_lens.device)
    before = weights.positions < seq_lens.unsqueeze(1)
    digest = (draft_kv[kv_indices] * (weights.draft_digest[:width] * before)).sum(1)
    access.read(draft_kv, _prefix_slots(kv_indices, seq_lens, width))
    positions = seq_lens + 1
    tokens, reduction = topk_index, hidden
    verify_tokens[:, 0] = bonus_tokens
    cells = []
    for step in range(1, steps + 1):
        tokens = with_stop(tokens, positions, stop)
        tokens = torch.where(flip == step, tokens ^ FLIP_BIT, tokens)
        verify_tokens[:, step] = tokens
        v1 = mix(tokens, positions)
        cells.append(v1)
        if step < steps:
            columns = positions.clamp(0, width)
            reduction = reduction + weights.reduction[columns] * mix(v1, digest)
            digest = digest + v1 * weights.digest[columns]
            tokens = unembed(reduction)
            positions = positions + 1
    scratch = kv_indices.gather(1, (seq_lens.unsqueeze(1) + weights.positions[:steps]).clamp(0, width - 1))
    draft_kv[scratch] = torch.stack(cells, 1)
    access.write(draft_kv, scratch)


def verify_kernel(
    access: Access,
    target_kv: Tensor,
    kv_indices: Tensor,
    weights: Weights,
    seq_lens: Tensor,
    verify_tokens: Tensor,
    stop_positions: list[int],
    next_token_ids: Tensor,
    accept_lens: Tensor,
    new_seq_lens: Tensor,
    bonus_tokens: Tensor,
    hidden_states: Tensor,
) -> None:
    """Target verify of [bonus, S drafts] at C..C+S, then the greedy accept of a chain.

    seq_lens: (bs,) = C. verify_tokens: (bs, K). Written: next_token_ids (bs, K), accept_lens (bs,) incl. the bonus,
    new_seq_lens (bs,) = C + accept, bonus_tokens (bs,), hidden_states (bs,) = O at the last accepted position.
    """
    reductions, positions = window_forward(access, target_kv, kv_indices, weights, seq_lens, verify_tokens, None)
    stop = torch.tensor(stop_positions, device=seq_lens.device).unsqueeze(1)
    predicted = with_stop(unembed(reductions), positions + 1, stop)
    right = (predicted[:, :-1] == verify_tokens[:, 1:]).cumprod(1).sum(1)
    last = right.unsqueeze(1)
    next_token_ids.copy_(predicted)
    torch.add(right, 1, out=accept_lens)
    torch.add(seq_lens, accept_lens, out=new_seq_lens)
    bonus_tokens.copy_(predicted.gather(1, last).squeeze(1))
    hidden_states.copy_(reductions.gather(1, last).squeeze(1))
    access.read(seq_lens, None)


def extend_kernel(
    access: Access,
    target_kv: Tensor,
    kv_indices: Tensor,
    weights: Weights,
    seq_lens: Tensor,
    input_ids: Tensor,
    out_cache_loc: Tensor,
    extend_lens: list[int],
    stop_positions: list[int],
    next_token_ids: Tensor,
    hidden_states: Tensor,
) -> None:
    """Target extend (also plain decode, where every row extends by 1): window [seq_len - extend_len, seq_len).

    input_ids, out_cache_loc: flat, sum(extend_lens). Written: next_token_ids (bs,), hidden_states (bs,) = O at the end.
    """
    access.read(seq_lens, None)
    lens = torch.tensor(extend_lens, device=seq_lens.device)
    tokens, locs = pad_windows(input_ids, extend_lens), pad_windows(out_cache_loc, extend_lens)
    base = seq_lens - lens
    reductions, positions = window_forward(access, target_kv, kv_indices, weights, base, tokens, locs)
    last = (lens - 1).unsqueeze(1)
    final = reductions.gather(1, last).squeeze(1)
    stop = torch.tensor(stop_positions, device=seq_lens.device)
    next_token_ids.copy_(with_stop(unembed(final), positions.gather(1, last).squeeze(1) + 1, stop))
    hidden_states.copy_(final)


def pad_windows(flat: Tensor, lens: list[int]) -> Tensor:
    """A flat concatenation of windows as (bs, longest window), padded with 0 on the right."""
    if len(lens) == 1:
        return flat.unsqueeze(0)
    if max(lens) == 1:
        return flat.unsqueeze(1)
    return torch.nn.utils.rnn.pad_sequence(list(flat.split(lens)), batch_first=True)


def draft_extend_kernel(
    access: Access,
    draft_kv: Tensor,
    kv_indices: Tensor,
    weights: Weights,
    base: Tensor,
    following: Tensor,
    last: Tensor,
    hidden_in: Tensor,
    valid_lens: list[int] | None,
    topk_index: Tensor,
    hidden_out: Tensor,
) -> None:
    """Bring the draft KV up to the new frontier and draft the first proposal of the next round.

    base: (bs,) first position of the window. following: (bs, E) the token after each window position. last: (bs,) index
    of the last retained window position, so the frontier is base + last + 1. hidden_in: (bs,) target O there.
    valid_lens: lanes that exist by row, None = all (a verify window: lanes past the accept are overwritten later).
    Written: topk_index (bs,), hidden_out (bs,) = the draft's O after it consumed the bonus.
    """
    width, lanes = weights.width, following.shape[1]
    positions = base.unsqueeze(1) + weights.positions[:lanes]
    window = kv_indices.gather(1, positions.clamp(0, width - 1))
    if valid_lens is not None and min(valid_lens) < lanes:
        lens = torch.tensor(valid_lens, device=base.device).unsqueeze(1)
        window = window * (weights.positions[:lanes] < lens)  # padding lanes write to slot 0
    cells = mix(following, positions + 1)
    draft_kv[window] = cells
    access.write(draft_kv, window)
    frontier = base + last + 1
    before = weights.positions < (frontier - 1).unsqueeze(1)
    digest = (draft_kv[kv_indices] * (weights.draft_digest[:width] * before)).sum(1)
    access.read(draft_kv, _prefix_slots(kv_indices, frontier - 1, width))
    v1 = cells.gather(1, last.unsqueeze(1)).squeeze(1)
    reduction = hidden_in + weights.reduction[frontier.clamp(0, width)] * mix(v1, digest)
    hidden_out.copy_(reduction)
    topk_index.copy_(unembed(reduction))
