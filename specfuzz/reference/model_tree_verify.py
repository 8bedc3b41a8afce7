"""The target side of trees (topk > 1) on arrays: verify under the tree's mask, walk, and compaction of the path.

Like `model`: int64 that wraps, no control flow that depends on device data. bs rows, S = levels, K = nodes that are
verified. Nodes lie in the window [C, C + K) of their row, the root first; a walk accepts nodes that are scattered
there, and what comes next takes them for the front of the window.
Source: sglang 0.5.23 speculative/eagle_worker_common run_eagle_verify, _finalize_accept_tree_path (behaviour).
"""

from __future__ import annotations

from specfuzz.core.language import STOP_TOKEN
from specfuzz.gpu.arrays import Array
from specfuzz.gpu.races import Access
from specfuzz.reference.model import Weights


def verify_window_kernel(
    access: Access, weights: Weights, kv_indices: Array, seq_lens: Array, out_cache_loc: Array
) -> None:
    """Slots of the window [C, C + K) out of the rows that the plan has copied. out_cache_loc: (bs, K), written."""
    access.read(kv_indices, None)
    access.read(seq_lens, None)
    lanes = weights.window(seq_lens, out_cache_loc.shape[1])
    out_cache_loc[...] = weights.arrays.gather(kv_indices, lanes)
    access.write(out_cache_loc, None)


def verify_tree_kernel(
    access: Access,
    weights: Weights,
    target_v1: Array,
    target_v2: Array,
    kv_indices: Array,
    seq_lens: Array,
    out_cache_loc: Array,
    verify_tokens: Array,
    positions: Array,
    tree_mask: Array,
    stop_positions: list[int],
    predict: Array,
    hidden_states: Array,
    only_stop: list[list[int]] | None = None,
) -> None:
    """Target verify of a tree: node n lies in slot out_cache_loc[n] and attends to the prefix and to its ancestors.

    seq_lens: (bs,) = C. out_cache_loc, verify_tokens, positions: (bs, K) by node. tree_mask: (bs, K, K). only_stop:
    (bs, K) 1 where a grammar lets nothing else follow. Written by node, (bs, K): predict, the token that follows;
    hidden_states = O.
    """
    xp = weights.arrays
    for source in (seq_lens, out_cache_loc, verify_tokens, positions, tree_mask):
        access.read(source, None)
    for layer in (target_v1, target_v2):
        access.read(layer, kv_indices)
        access.write(layer, out_cache_loc)

    below = xp.dot(xp.take(target_v1, kv_indices), weights.digest_below(seq_lens))[:, None]
    v1 = weights.mix(verify_tokens, positions)
    target_v1[out_cache_loc] = v1
    own = xp.take(target_v1, out_cache_loc) * positions
    digest = below + xp.dot(tree_mask, own[:, None]) - own

    below = xp.dot(xp.take(target_v2, kv_indices), weights.reduction_below(seq_lens))[:, None]
    target_v2[out_cache_loc] = weights.mix(v1, digest)
    own = xp.take(target_v2, out_cache_loc) * (positions + 1)
    reductions = below + xp.dot(tree_mask, own[:, None])

    predicted = weights.unembed(reductions)
    if max(stop_positions) >= 0:
        predicted = xp.where(positions + 1 == xp.array(stop_positions)[:, None], STOP_TOKEN, predicted)
    if only_stop is not None:
        predicted = xp.where(xp.array(only_stop) == 1, STOP_TOKEN, predicted)
    predict[...] = predicted
    hidden_states[...] = reductions
    access.write(predict, None)
    access.write(hidden_states, None)


def accept_tree_kernel(
    access: Access,
    weights: Weights,
    seq_lens: Array,
    verify_tokens: Array,
    positions: Array,
    parents: Array,
    tree_mask: Array,
    predict: Array,
    accept_index: Array,
    accept_lens: Array,
    new_seq_lens: Array,
) -> None:
    """Greedy walk from the root: a node is accepted if it and all nodes above it are what their parents predict.

    Siblings differ, so the accepted nodes are one path. Written: accept_index (bs, S + 1) its nodes by level, then -1;
    accept_lens (bs,) = its length with the root, which stands for the bonus; new_seq_lens (bs,) = C + accept_lens.
    """
    xp = weights.arrays
    for source in (seq_lens, verify_tokens, positions, parents, tree_mask, predict):
        access.read(source, None)
    follows = xp.gather(predict, parents) == verify_tokens
    follows[:, 0] = True
    depths = positions - xp.spread(seq_lens, positions.shape[1])
    accepted = xp.dot(tree_mask, follows[:, None]) == depths + weights.one
    levels = weights.positions[: accept_index.shape[1]]
    there = accepted[:, None] * (depths[:, None] == levels[:, None])
    # One node per level at most: its number and 1, or 0 where the path has ended.
    accept_index[...] = xp.dot(there, weights.reduction[: depths.shape[1]]) - weights.one
    accept_lens[...] = accepted.sum(1)
    new_seq_lens[...] = seq_lens + accept_lens
    for result in (accept_index, accept_lens, new_seq_lens):
        access.write(result, None)


def fill_bonus_tokens_kernel(
    access: Access, weights: Weights, predict: Array, accept_index: Array, accept_lens: Array, stride: int, bonus: Array
) -> None:
    """The token behind each row's accepted path, out of the accepted tokens of all rows end to end.

    stride: accepted tokens per row in that flat list, the width of accept_index; a place behind its end gives some
    other token. bonus: (bs,), written.
    """
    xp = weights.arrays
    for source in (predict, accept_index, accept_lens):
        access.read(source, None)
    accepted = xp.gather(predict, xp.not_below_zero(accept_index)).reshape(-1)
    last = xp.arange(bonus.shape[0]) * stride + accept_lens - 1
    bonus[...] = xp.take(accepted, last % accepted.shape[0])
    access.write(bonus, None)


def accepted_locs_kernel(
    access: Access,
    weights: Weights,
    out_cache_loc: Array,
    accept_index: Array,
    accept_lens: Array,
    tgt_cache_loc: Array,
    accept_out_cache_loc: Array,
) -> None:
    """Slots of the move: from the accepted nodes' to the front of the same window.

    Both come from the window that the verify wrote: by now the row may belong to another request. out_cache_loc:
    (bs, K). tgt_cache_loc, accept_out_cache_loc: (bs, S + 1), written; lanes behind the path name slot 0.
    """
    xp, width = weights.arrays, accept_index.shape[1]
    for source in (out_cache_loc, accept_index, accept_lens):
        access.read(source, None)
    within = weights.positions[:width] < accept_lens[:, None]
    tgt_cache_loc[...] = out_cache_loc[:, :width] * within
    accept_out_cache_loc[...] = xp.gather(out_cache_loc, xp.not_below_zero(accept_index)) * within
    access.write(tgt_cache_loc, None)
    access.write(accept_out_cache_loc, None)


def compact_accepted_kernel(
    access: Access, weights: Weights, accept_index: Array, sources: list[Array], targets: list[Array]
) -> None:
    """Copies of node-indexed tensors (bs, K) with the accepted path at the front; lanes behind it hold no answer."""
    xp = weights.arrays
    access.read(accept_index, None)
    lanes, width = xp.not_below_zero(accept_index), accept_index.shape[1]
    for source, target in zip(sources, targets, strict=True):
        target[...] = source
        target[:, :width] = xp.gather(source, lanes)
        access.read(source, None)
        access.write(target, None)


def select_last_kernel(access: Access, weights: Weights, hidden: Array, accept_lens: Array, out: Array) -> None:
    """(bs,) the hidden state of the last accepted node: lane accept_lens - 1 of the compacted window."""
    access.read(hidden, None)
    access.read(accept_lens, None)
    out[...] = weights.arrays.gather(hidden, accept_lens[:, None] - 1)[:, 0]
    access.write(out, None)
