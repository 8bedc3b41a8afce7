"""CPU replacements for the two GPU kernels that the scheduler side of SGLang launches.

Both names are bound by `from ... import`, so they are rebound in the importing module. (With TRITON_INTERPRET=1 the
real kernels run on a CPU too, at a hundred times the cost.)
"""

from __future__ import annotations

import torch

from specfuzz.systems.sglang.versions import Engine


def assign_req_to_token(
    req_pool_indices: torch.Tensor,
    req_to_token: torch.Tensor,
    start_offset: torch.Tensor,
    end_offset: torch.Tensor,
    out_cache_loc: torch.Tensor,
    batch_size: int,
) -> None:
    """Write consecutive pieces of out_cache_loc into row r at [start_offset, end_offset), row by row.

    Like the kernel it writes through the flat table: a range beyond the row's end runs into the next row. Only what
    would leave the table altogether is dropped.
    """
    flat, width = req_to_token.view(-1), req_to_token.shape[1]
    starts, ends = start_offset.tolist(), end_offset.tolist()
    offset = 0
    for index, row in enumerate(req_pool_indices.tolist()[:batch_size]):
        base, count = row * width + starts[index], ends[index] - starts[index]
        inside = min(count, len(flat) - base)
        flat[base : base + inside] = out_cache_loc[offset : offset + inside].to(req_to_token.dtype)
        offset += count


def gather_spec_extras(
    indices: torch.Tensor,
    topk_p_buf: torch.Tensor,
    topk_index_buf: torch.Tensor,
    output_tokens_buf: torch.Tensor,
    hidden_states_buf: torch.Tensor | None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor | None]:
    """Gather one relay row per request from each buffer."""
    hidden = None if hidden_states_buf is None else hidden_states_buf[indices]
    return topk_p_buf[indices], topk_index_buf[indices], output_tokens_buf[indices], hidden


def install(engine: Engine) -> None:
    """Rebind both names; idempotent."""
    engine.allocation.assign_req_to_token_pool_func = assign_req_to_token
    engine.overlap_utils.gather_spec_extras = gather_spec_extras
