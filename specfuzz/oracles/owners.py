"""Which function may write which owned field: the ownership table of the host ledger.

Writers are function names, as an observer sees them from outside. A field that isn't listed has no owner yet. Writing 0
is a reset and free to everyone who releases a request (`reset_for_retract`, `mark_kv_released`, ...): a wrong reset
breaks the ledger rules at once. The table is measured on the sources of sglang 0.5.23 and holds for every engine with
its names; a speculative worker appears nowhere in it.
"""

from __future__ import annotations

from functools import cache

OWNERS: dict[str, frozenset[str]] = {
    "kv_committed_len": frozenset(
        {
            "alloc_for_extend",  # = seq_len
            "alloc_for_decode_default",  # += 1, plain decode
            "alloc_for_decode",  # the same under its dispatching name
            "_resolve_spec_v2_tokens",  # += the accepted run of a live row
            "process_batch_result_prefill",  # += 1 for a live mixed speculative tail
        }
    ),
    "kv_allocated_len": frozenset(
        {
            "alloc_for_extend",
            "alloc_for_decode_default",
            "alloc_for_decode",
            "alloc_for_spec_decode",  # = max(old, reserved)
            "mark_kv_released",
        }
    ),
    "cache_protected_len": frozenset(
        {
            "match_kv_cache",
            "init_next_round_input",
            "add_one_req",
            "checkpoint",
            "checkpoint_kv_cache",
            "reset_for_retract",
        }
    ),
    "decode_batch_idx": frozenset({"prepare_for_decode", "eagle_prepare_for_decode", "reset_for_retract"}),
    "extend_batch_idx": frozenset({"prepare_for_extend", "reset_for_retract"}),
    "spec_verify_ct": frozenset({"_resolve_spec_v2_tokens"}),
    "spec_num_correct_drafts": frozenset({"_resolve_spec_v2_tokens"}),
}


@cache
def is_owner(field: str, writer: str) -> bool:
    """Whether the ownership table lets `writer` write `field`; a leading underscore makes no difference."""
    allowed = _BARE.get(field)
    return allowed is None or writer.lstrip("_") in allowed


_BARE = {field: frozenset(name.lstrip("_") for name in names) for field, names in OWNERS.items()}
