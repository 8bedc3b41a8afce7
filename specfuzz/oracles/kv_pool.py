"""Rules on KV content: every settled cell is the cell of the true continuation, and so is every token that follows."""

from __future__ import annotations

from specfuzz.core.capability import Capability
from specfuzz.core.clock import Clock, Owner, Point, Scope
from specfuzz.core.event import Idle, Settle
from specfuzz.core.oracle import Step, oracle
from specfuzz.core.snapshot import LaunchView, ReqView
from specfuzz.core.verdict import Clash, Finding, Verdict
from specfuzz.oracles.facts import CONTENT_EVENTS, executed_len, forward, is_live, judged, limits, wrong_cell

HOLDS = Verdict.HOLDS


@oracle(
    "target-kv-is-true",
    formula="executed p < frontier: (v1, v2) of slots[p] == cell of the true token at p after the true prefix",
    clock=Clock.DEVICE,
    owner=Owner.KV_POOL,
    scope=Scope.REQUEST,
    needs=Capability.CONTENT_VIEW | Capability.DEVICE_VIEW,
    on=CONTENT_EVENTS,
    source="sglang 0.5.23 mem_cache/memory_pool MHATokenToKVPool.set_kv_buffer; sglang #15360",
    twin="result-settles",
)
def target_kv_is_true(step: Step, req: ReqView) -> Finding:
    """Through its row, a live request sees the KV of its own text on every position that was executed."""
    device = step.after.device
    if device is None:
        return Verdict.UNKNOWN
    if not is_live(req):
        return None
    due = executed_len(step, req)
    if due <= 0:
        return None
    rid, target_v1, target_v2 = req.rid, device.target_v1, device.target_v2
    look = judged(step, "target-judged", rid)
    if look.is_same(req, due, target_v1, target_v2):
        return None
    text = step.ledger.requests[rid].text
    if len(text.cells1) < due:
        text.target_cell(due - 1)
    second, wanted = look.read(target_v2), text.cells2[:due]
    first, wanted_first = look.read(target_v1), text.cells1[:due]
    if second == wanted and first == wanted_first:
        return HOLDS
    why = "its launch has been executed"
    if first != wanted_first:
        return wrong_cell("target KV (layer 1)", rid, look.slots, first, wanted_first, why)
    return wrong_cell("target KV (layer 2)", rid, look.slots, second, wanted, why)


@oracle(
    "decided-tokens-are-the-text",
    formula="worker exit, live rows: next_tokens == the true continuation up to the new frontier",
    clock=Clock.DEVICE,
    owner=Owner.KV_POOL,
    scope=Scope.BATCH,
    point=Point.WORKER_EXIT,
    needs=Capability.LAUNCH_VIEW,
    source="sglang 0.5.23 speculative/eagle_worker_common run_eagle_verify",
    twin="launch",
)
def decided_tokens_are_the_text(step: Step, launch: LaunchView) -> Finding:
    """The target reads its prefix through the row table, so one wrong cell changes the next token."""
    leaving = launch.exit
    if leaving is None:
        return Verdict.UNKNOWN
    known, width = forward(step, launch), limits(step).row_width
    finding: Finding = None
    for row, req in known.rows:
        run, frontier = leaving.next_tokens[row], leaving.new_seq_lens[row]
        if not 0 < frontier <= width:
            continue
        if req.rid in known.middle:
            continue  # a middle chunk's token is thrown away
        asked, text = step.ledger.requests[req.rid], step.ledger.requests[req.rid].text
        if asked.submit.grammar and frontier + 1 - len(run) > req.prompt_len + (asked.stop_at or 0):
            continue  # nobody sees what is sampled behind the end of a constrained text, under whatever mask
        text.ensure(frontier + 1)
        wanted = tuple(text.tokens[frontier + 1 - len(run) : frontier + 1])
        if run != wanted:
            return Clash(
                f"next_tokens[{row}] = {run} == {wanted}",
                f"forward {launch.number} ({launch.mode}) decided {run} for {req.rid}",
                f"plain decoding of the same prompt continues with {wanted} up to position {frontier}",
                rid=req.rid,
            )
        finding = HOLDS
    return finding


@oracle(
    "output-is-plain-decoding",
    formula="output_ids == what plain autoregressive decoding of the prompt emits",
    clock=Clock.HOST,
    owner=Owner.SAMPLER,
    scope=Scope.REQUEST,
    on=(Settle, Idle),
    changed_only=True,
    source="sglang 0.5.23 managers/scheduler_components/batch_result_processor process_batch_result_decode",
    twin="result-settles",
)
def output_is_plain_decoding(step: Step, req: ReqView) -> Finding:
    """Speculation is lossless: no interleaving, accept length, retraction or cache hit changes the text."""
    before = step.before.reqs.get(req.rid)
    if before is not None and before.output_ids == req.output_ids:
        return None
    old = 0 if before is None else len(before.output_ids)
    new = req.output_ids[old:]
    text = step.ledger.requests[req.rid].text
    start = req.prompt_len + old
    text.ensure(start + len(new))
    wanted = tuple(text.tokens[start : start + len(new)])
    if new == wanted and new:
        return HOLDS
    return Clash(
        f"output_ids({req.rid})[{old}:] = {new} == {wanted}",
        f"{req.rid} emitted {new} from output index {old} on",
        f"plain decoding of its prompt emits {wanted} there",
    )
