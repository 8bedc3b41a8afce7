"""Arguments of events, decoded arithmetically from one integer and the scene; never filtered, 0 is the plainest choice.

Every function takes `bits`, an integer in [0, 2^ARGUMENT_BITS), and a scene in which its kind has a subject.
"""

from __future__ import annotations

from specfuzz.core.event import Abort, Advance, Evict, Finish, Mix, Prefill, Retract, Submit, Verify
from specfuzz.state_machine.scenes import Scene

ARGUMENT_BITS = 16

PROMPT_LENS = range(2, 21)  # tokens; 2 is the shortest that legality admits
#: Output tokens. One in five ends within two full EAGLE runs of 3 draft steps, the others live for many rounds.
MAX_NEWS = (*range(15, 25), 1, 2, 3, 5, 8, *range(16, 25))

#: Tokens of the longest request whose prompt does not depend on the page size.
LONGEST_REQUEST = PROMPT_LENS[-1] + max(MAX_NEWS)

#: Output tokens of the longest constrained text: short enough that many come to their end.
LONGEST_GRAMMAR = 12

#: Distance of an armed stop from the first undecided output token. Most lie inside the next accepted run.
STOP_OFFSETS = (0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 4, 0, 4, 5, 9)

#: `advance` mostly drives the stream that does the work.
ADVANCE_STREAMS = ("forward", "copy", "schedule", "forward", "d2h", "forward", "copy", "forward")


def submit_of(scene: Scene, bits: int, *, brief: bool = False, lengthy: bool = False) -> Submit:
    """A request that fits the context; brief: few output tokens; lengthy: a prompt near the longest."""
    config = scene.config
    bits, prompt_choice = divmod(bits, len(PROMPT_LENS))
    bits, new_choice = divmod(bits, len(MAX_NEWS))
    prompt_len = PROMPT_LENS[-1 - prompt_choice % 4] if lengthy else PROMPT_LENS[prompt_choice]
    max_new = 1 + new_choice % 6 if brief else MAX_NEWS[new_choice]
    bits, share = divmod(bits, 8)
    if bits & 3 == 3 and config.page_size > PROMPT_LENS[0]:
        # Around the end of the first page: only whole pages can be cached and shared.
        prompt_len = max(2, config.page_size - 2 + prompt_choice % 6)
    most = config.context_len
    prompt_len = min(prompt_len, most - 1)
    max_new = min(max_new, most - prompt_len)
    whole_pages = prompt_len // config.page_size * config.page_size
    shared_len = (0, prompt_len, 0, prompt_len // 2, whole_pages, prompt_len - 1, 0, prompt_len)[share]
    grammar = 0
    if config.grammar and bits >> 2 & 1:
        grammar = 1 + (prompt_choice + 3 * new_choice) % min(max_new, LONGEST_GRAMMAR)
    return Submit(scene.fresh_rid(), prompt_len, max_new, shared_len, grammar)


def _chunk_of(scene: Scene, bits: int) -> int:
    """n of a prefill: all that is left, or a chunk (of whole pages) where chunks are allowed."""
    if not scene.config.chunked_prefill or bits & 1 == 0:
        return 0
    page_size = scene.config.page_size
    return page_size * (1 + (bits >> 1) % 2) if page_size > 1 else 1 + (bits >> 1) % 8


def prefill_of(scene: Scene, bits: int) -> Prefill:
    """Admits one of the waiting requests."""
    waiting = scene.waiting
    bits, index = divmod(bits, len(waiting))
    return Prefill(waiting[index], _chunk_of(scene, bits))


def mix_of(scene: Scene, bits: int) -> Mix:
    """Admits one of the waiting requests together with the running rows."""
    waiting = scene.waiting
    bits, index = divmod(bits, len(waiting))
    return Mix(waiting[index], _chunk_of(scene, bits))


def verify_of(scene: Scene, bits: int) -> Verify:
    """Accept lengths of the prepared rows in one of five styles: none, all, one row, near a stop, any."""
    rids, most = scene.prepared or (), scene.config.max_accept
    if most == 1:
        return Verify()
    style, bits = bits & 7, bits >> 3
    if style == 0:
        return Verify()
    if style == 1:
        return Verify(tuple((rid, most) for rid in rids))
    if style == 2:
        return Verify(((rids[bits % len(rids)], most),))
    accept = []
    for rid in rids:
        run = 1 + bits % most
        if scene.armed and style < 6:
            run = _through_stop(scene, rid, run, most)
        if run > 1:
            accept.append((rid, run))
        bits = (bits // most) | (bits % most << 12)  # rotate, so that the fifth row is no stranger to the first
    return Verify(tuple(accept))


def _through_stop(scene: Scene, rid: str, run: int, most: int) -> int:
    """A run that ends at or behind the armed stop where that is in reach, else `run`."""
    asked = scene.asked(rid)
    if asked.stop_at is None:
        return run
    least = asked.stop_at - asked.decided + 1
    return max(run, least) if 1 <= least <= most else run


def advance_of(bits: int) -> Advance:
    """A few operations of one stream, now and then all of them."""
    stream, bits = ADVANCE_STREAMS[bits & 7], bits >> 3
    return Advance(stream, 64 if bits & 15 == 15 else 1 + bits % 4)


def finish_of(scene: Scene, bits: int) -> Finish:
    """Arms a stop near the decided end of a request, mostly of a running one."""
    offset, bits = STOP_OFFSETS[bits & 15], bits >> 4
    rids = scene.finishable
    if bits & 7 != 7:
        rids = [rid for rid in rids if rid in scene.running] or rids
    rid = rids[(bits >> 3) % len(rids)]
    asked = scene.asked(rid)
    return Finish(rid, min(asked.decided + offset, asked.stop_end(scene.config.max_accept) - 1))


def abort_of(scene: Scene, bits: int) -> Abort:
    """Aborts a request, mostly one that a launch or the prepared batch carries, or whose prompt is in by half."""
    rids = scene.abortable
    if scene.chunked and bits & 3 and scene.waiting[0] in rids:
        return Abort(scene.waiting[0])
    if bits & 3 != 3:
        rids = [rid for rid in rids if rid in scene.carried] or rids
    return Abort(rids[(bits >> 2) % len(rids)])


def retract_of(scene: Scene, bits: int) -> Retract:
    """Retracts a running request, mostly one that is in flight."""
    rids = scene.running
    if bits & 1 == 0:
        rids = [rid for rid in rids if rid in scene.carried] or rids
    return Retract(rids[(bits >> 1) % len(rids)])


def evict_of(bits: int) -> Evict:
    """Evicts a few tokens, or all."""
    return Evict(1 << 12 if bits & 3 == 3 else 1 + (bits >> 2) % 16)
