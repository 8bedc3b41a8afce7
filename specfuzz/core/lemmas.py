"""Pure integer lemmas of the ledger: what the reference computes with, and why it is enough (`specfuzz prove`).

Contracts are PEP 316 docstrings (`pre:`/`post:`), which CrossHair reads. Lengths are tokens on the host clock.
"""

from __future__ import annotations


def ceil_align(length: int, page_size: int) -> int:
    """Smallest multiple of page_size that is >= length.

    pre: 0 <= length <= 1 << 20 and page_size in (1, 4, 16, 64)
    post: __return__ % page_size == 0
    post: length <= __return__ < length + page_size
    """
    return -(-length // page_size) * page_size


def floor_align(length: int, page_size: int) -> int:
    """Largest multiple of page_size that is <= length.

    pre: 0 <= length <= 1 << 20 and page_size in (1, 4, 16, 64)
    post: __return__ % page_size == 0
    post: length - page_size < __return__ <= length
    """
    return length // page_size * page_size


def reserved_len(committed: int, allocated: int, reserve: int, page_size: int) -> int:
    """kv_allocated_len after a speculative prepare: page aligned, never smaller than before.

    pre: 0 <= committed <= allocated <= 1 << 16 and 1 <= reserve <= 512 and page_size in (1, 4, 16, 64)
    post: __return__ >= allocated and __return__ >= committed + reserve
    post: __return__ == allocated or __return__ % page_size == 0
    post: __return__ < max(allocated, committed + reserve) + page_size
    """
    return max(allocated, ceil_align(committed + reserve, page_size))


def window_fits(committed: int, lead: int, alloc_len: int, page_size: int) -> bool:
    """The reserve of two windows absorbs one unsettled verify: the next window ends inside of it.

    pre: 0 <= committed <= 1 << 16 and 0 <= lead <= alloc_len and 1 <= alloc_len <= 128
    pre: page_size in (1, 4, 16, 64)
    post: __return__
    """
    return committed + lead + alloc_len <= reserved_len(committed, committed, 2 * alloc_len, page_size)


def settled_lens(committed: int, seqlen: int, run: int) -> tuple[int, int]:
    """(kv_committed_len, seqlen) after a live speculative row settled a run; both move by the run.

    pre: 0 <= committed <= 1 << 16 and seqlen == committed + 1 and 1 <= run <= 128
    post: __return__[1] == __return__[0] + 1
    post: __return__[0] == committed + run
    """
    return committed + run, seqlen + run


def owned_len(committed: int, prompt_len: int, finished_len: int | None) -> int:
    """Length that a releasing request may cache: what is committed, cut at the stop where the stop has a position.

    pre: 0 <= committed <= 1 << 16 and 0 <= prompt_len <= 1 << 16
    pre: finished_len is None or 0 <= finished_len <= 1 << 16
    post: __return__ <= committed
    post: finished_len is None or __return__ <= prompt_len + finished_len
    """
    return committed if finished_len is None else min(committed, prompt_len + finished_len)


def mixed_tail(fresh: int) -> tuple[int, int, int]:
    """(prefix_len, extend_len, seq_len) of a mixed speculative tail at the published frontier `fresh`.

    pre: 0 <= fresh <= 1 << 16
    post: __return__[0] + __return__[1] == __return__[2]
    post: __return__[1] == 1
    """
    return fresh, 1, fresh + 1


def finished_len(num_output: int, max_new: int, stop_index: int | None) -> int | None:
    """Output tokens through the first end condition, None if none is met; a stop beyond the cap counts as length.

    pre: 0 <= num_output <= 1 << 16 and 1 <= max_new <= 1 << 16
    pre: stop_index is None or 0 <= stop_index < num_output
    post: __return__ is None or 1 <= __return__ <= min(num_output, max_new)
    post: (__return__ is None) == (num_output < max_new and stop_index is None)
    """
    if stop_index is not None:
        return min(stop_index + 1, max_new)
    return max_new if num_output >= max_new else None


#: What `specfuzz prove` checks.
LEMMAS = (ceil_align, floor_align, reserved_len, window_fits, settled_lens, owned_len, mixed_tail, finished_len)
