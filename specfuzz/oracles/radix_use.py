"""Rules on the use of the prefix tree: what is computed gets there, what lies there is hit, nothing goes without need.

A tree that breaks them gives no wrong answer. It computes again what it had, and nobody hears about it.
"""

from __future__ import annotations

from specfuzz.core.capability import Capability
from specfuzz.core.clock import Clock, Owner, Scope
from specfuzz.core.event import Evict, Idle, Mix, Prefill, Prepare, Retract, Settle
from specfuzz.core.lemmas import ceil_align, floor_align, owned_len
from specfuzz.core.oracle import Step, oracle
from specfuzz.core.snapshot import CachedPath, ReqView
from specfuzz.core.verdict import Clash, Finding, Verdict
from specfuzz.oracles.facts import is_live, limits, settled_rows

HOLDS = Verdict.HOLDS
TREE = Capability.RADIX | Capability.TREE_VIEW
#: Decode steps of room, in tokens, that a retraction makes for each survivor. Source: SGLANG_RETRACT_DECODE_STEPS.
RETRACT_DECODE_STEPS = 20


def _keyed(step: Step, length: int) -> int:
    """Positions of `length` tokens that whole pages of the tree can hold; a bigram key needs the token behind."""
    known = limits(step)
    return floor_align(max(0, length - known.speculative), known.page_size)


def _common(path: CachedPath, tokens: list[int], most: int) -> int:
    """Leading positions, at most `most`, at which the path's keys are those of the tokens."""
    count = 0
    for mine, theirs in zip(path.tokens, tokens, strict=False):
        if mine != theirs:
            break
        count += 1
    behind = len(path.tokens) - len(path.slots)  # bigrams: the last id is only looked at
    return max(0, min(count - behind, len(path.slots), most))


@oracle(
    "settled-text-is-cached",
    formula=(
        "settled: a live row has cache_protected_len == floor_page(end of an extend among the results), else what it "
        "had; a finished one has a path of floor_page(min(committed, prompt + finished_len)); bigrams: a position less"
    ),
    clock=Clock.HOST,
    owner=Owner.RADIX_CACHE,
    scope=Scope.REQUEST,
    needs=TREE,
    on=(Settle, Idle),
    changed_only=True,
    source="sglang 0.5.23 mem_cache/common release_kv_cache, checkpoint_kv_cache; sglang #34870",
    twin="tree-holds-output",
)
def settled_text_is_cached(step: Step, req: ReqView) -> Finding:
    """An extend and an end hand the tree what they have computed, as far as whole pages go; a decode hands nothing."""
    before, cached = step.before.reqs.get(req.rid), step.after.pool.cached
    carried = settled_rows(step).get(req.rid)
    if carried is None or before is None or not is_live(before) or step.ledger.requests[req.rid].dropping:
        return None
    if cached is None:
        return Verdict.UNKNOWN
    text = step.ledger.requests[req.rid].text
    if req.finished:
        due = _keyed(step, owned_len(req.kv_committed_len, req.prompt_len, req.finished_len))
        text.ensure(due + 1)
        found = max((_common(path, text.tokens, due) for path in cached), default=0)
    else:
        ends = [
            start + length
            for known, _row in carried
            for rid, start, length in known.admitted
            if rid == req.rid and rid not in known.middle
        ]
        due, found = _keyed(step, ends[-1]) if ends else before.cache_protected_len, req.cache_protected_len
    if found == due or (found > due and req.finished):
        return HOLDS if due else None
    return Clash(
        f"{found} {'>=' if req.finished else '=='} {due}",
        f"{req.rid} has settled {req.seqlen} tokens, {req.kv_committed_len} of them with KV, "
        f"and is {f'finished by {req.finished_reason}' if req.finished else 'running'}",
        f"the tree has {found} positions of it where {due} are due",
    )


@oracle(
    "prefill-hits-what-is-cached",
    formula="admitted with a first extend => prefix_len >= pages of its text, without its last token, in the tree",
    clock=Clock.HOST,
    owner=Owner.RADIX_CACHE,
    scope=Scope.RUN,
    needs=TREE,
    on=(Prefill, Mix),
    source="sglang 0.5.23 mem_cache/radix_cache RadixCache.match_prefix; sglang #34870, #32459",
    twin="prefix-hit",
)
def prefill_hits_what_is_cached(step: Step) -> Finding:
    """What lies in the tree is not computed again."""
    cached, finding = step.before.pool.cached, None
    if cached is None:
        return Verdict.UNKNOWN
    for rid, prefix, _extend in step.receipt.admitted:
        then = step.before.reqs[rid]
        if then.req_pool_idx is not None or not cached:
            continue
        text = step.ledger.requests[rid].text
        text.ensure(then.seqlen)
        tokens, size = text.tokens[: then.seqlen - 1], limits(step).page_size
        due = max(floor_align(_common(path, tokens, then.seqlen), size) for path in cached)
        if prefix < due:
            return Clash(
                f"{prefix} >= {due}",
                f"{rid} was admitted with a prefix of {prefix} of its {then.seqlen} tokens",
                f"the tree had {due} of them",
                rid=rid,
            )
        finding = HOLDS if due else finding
    return finding


@oracle(
    "eviction-is-needed",
    formula="evicted > 0 => tokens that the step may ask for > free before, and evicted < what is short + one leaf",
    clock=Clock.HOST,
    owner=Owner.RADIX_CACHE,
    scope=Scope.RUN,
    needs=TREE,
    on=(Prefill, Mix, Prepare, Retract, Evict),
    source="sglang 0.5.23 mem_cache/allocator/base evict_to_free_tokens; sglang #32459",
    twin="eviction",
)
def eviction_is_needed(step: Step) -> Finding:
    """The tree gives up what is short and no more; only its last leaf may be larger than that."""
    before, after = step.before.pool, step.after.pool
    if before.cached is None or after.cached is None:
        return Verdict.UNKNOWN
    if not step.receipt.evicted:
        return None
    if isinstance(step.event, Evict):
        short = step.event.n
    else:
        short = _asked(step) - len(before.free_pages) * before.page_size
    left = {slot for path in after.cached for slot in path.slots}
    leaf = max((sum(slot not in left for slot in path.slots) for path in before.cached), default=0)
    if short > 0 and step.receipt.evicted < short + leaf:
        return HOLDS
    return Clash(
        f"{short} > 0 and {step.receipt.evicted} < {short} + {leaf}",
        f"{step.receipt.evicted} tokens left the tree, {leaf} of them on one path",
        f"{len(before.free_pages)} pages of {before.page_size} tokens were free, so at most {short} tokens were short",
    )


def _asked(step: Step) -> int:
    """At most so many tokens are asked to be free at once in this event, with what it has taken by then."""
    receipt, known = step.receipt, limits(step)
    size = known.page_size
    asked = sum(extend + size for _rid, _prefix, extend in receipt.admitted)
    for req in step.before.reqs.values():
        if req.req_pool_idx is not None and is_live(req):
            want = max(req.kv_allocated_len, ceil_align(req.kv_committed_len + known.reserve, size))
            # A page more for each row, and the rest of its last page twice: upstream's estimate is conservative.
            asked += 0 if isinstance(step.event, Prefill | Retract) else want - req.kv_allocated_len + size
            asked += RETRACT_DECODE_STEPS if receipt.retracted or receipt.finished else 0
    return asked
