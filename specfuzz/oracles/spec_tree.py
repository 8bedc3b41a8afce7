"""Rules of a speculative worker that drafts trees (topk > 1): branches, the accepted path and its move, the bonus."""

from __future__ import annotations

from specfuzz.core.capability import Capability
from specfuzz.core.clock import Clock, Owner, Point, Scope
from specfuzz.core.draft_tree import branch_stride, branches_end, nodes_of, right_branch, seeds
from specfuzz.core.language import unembed
from specfuzz.core.oracle import Step, oracle
from specfuzz.core.snapshot import LaunchView
from specfuzz.core.verdict import Clash, Finding, Verdict
from specfuzz.oracles.facts import forward

HOLDS = Verdict.HOLDS
TREE = Capability.TREE | Capability.LAUNCH_VIEW


def first_proposals(step: Step, rid: str, frontier: int, hidden: int) -> tuple[int, ...]:
    """What a draft in state `hidden` proposes first in the round at `frontier`: one token, of a tree one per branch."""
    topk = step.config.topk
    if topk == 1:
        return (unembed(hidden),)
    return seeds(hidden, right_branch(rid, frontier, topk), topk)


@oracle(
    "branches-inside-the-reserve",
    formula=(
        "tree DECODE entry: floor_page(C) + topk * ceil_page(C % page_size + spec_steps) <= kv_allocated_len at "
        "launch, C = entry seq_lens"
    ),
    clock=Clock.DEVICE,
    owner=Owner.SCHEDULER,
    scope=Scope.BATCH,
    point=Point.WORKER_ENTRY,
    needs=TREE,
    source="sglang 0.5.23 mem_cache/allocation_sizing get_alloc_len_per_decode; sglang #26972",
    twin="tree-drafts-ahead-of-the-host",
)
def branches_inside_the_reserve(step: Step, launch: LaunchView) -> Finding:
    """Every branch has whole pages of its own, with room for the prefix's partial page and all levels."""
    entry = launch.entry
    if launch.mode != "DECODE":
        return None
    if entry is None:
        return Verdict.UNKNOWN
    config = step.config
    finding: Finding = None
    for row, req in forward(step, launch).rows:
        start = entry.seq_lens[row]
        end = branches_end(start, config.page_size, config.spec_steps, config.topk)
        if end > launch.allocated[row]:
            stride = branch_stride(start, config.page_size, config.spec_steps)
            return Clash(
                f"{start - start % config.page_size} + {config.topk} * {stride} = {end} <= {launch.allocated[row]}",
                f"forward {launch.number} drafts {config.topk} branches of {config.spec_steps} levels for {req.rid} "
                f"from {start} on",
                f"its row is backed up to {launch.allocated[row]} (host committed {launch.committed[row]})",
                rid=req.rid,
            )
        finding = HOLDS
    return finding


@oracle(
    "accept-index-is-a-path",
    formula=(
        "tree exit: accept_index[row] has spec_steps + 1 lanes: accept_lens nodes, the root first and each a child of "
        "the one before it, then -1"
    ),
    clock=Clock.DEVICE,
    owner=Owner.SPEC_WORKER,
    scope=Scope.BATCH,
    point=Point.WORKER_EXIT,
    needs=TREE,
    source="sglang 0.5.23 speculative/eagle_utils eagle_sample accept_index",
    twin="scattered-path-is-accepted",
)
def accept_index_is_a_path(step: Step, launch: LaunchView) -> Finding:
    """What is accepted is one walk down the tree, written level by level."""
    leaving, entry = launch.exit, launch.entry
    if launch.mode != "DECODE":
        return None
    if leaving is None or entry is None or not leaving.accept_index:
        return Verdict.UNKNOWN
    config = step.config
    for row, rid in enumerate(launch.rids):
        path, accepted = leaving.accept_index[row], leaving.accept_lens[row]
        branch = right_branch(rid, entry.seq_lens[row], config.topk)
        nodes = nodes_of(config.topk, config.spec_steps, config.draft_token_num, branch)
        parents = tuple(-1 if not 0 < node <= len(nodes) else nodes[node - 1].parent for node in path[1:accepted])
        behind = (-1,) * (config.spec_steps + 1 - accepted)
        if path[:1] != (0,) or parents != path[: accepted - 1] or path[accepted:] != behind:
            return Clash(
                f"accept_index[{row}] = {path}, parents {parents}, accept_lens {accepted}",
                f"forward {launch.number} accepted the nodes {path} for {rid}, whose parents are {parents}",
                f"a path of {accepted} nodes starts at the root, goes from child to child and fills "
                f"{config.spec_steps + 1} lanes with -1",
                rid=rid,
            )
    return HOLDS if launch.rids else None


@oracle(
    "move-stays-in-the-window",
    formula=(
        "tree exit, every row, d < accept_lens: KV moves to window[d] from window[accept_index[d]], window = the slots "
        "that the verify wrote"
    ),
    clock=Clock.DEVICE,
    owner=Owner.SPEC_WORKER,
    scope=Scope.BATCH,
    point=Point.WORKER_EXIT,
    needs=TREE,
    source="sglang 0.5.23 speculative/spec_utils move_accept_tokens_to_target_kvcache",
    twin="row-handed-on-in-flight",
)
def move_stays_in_the_window(step: Step, launch: LaunchView) -> Finding:
    """Dead rows too: their row may name another request's slots by now, and a move there would overwrite its KV."""
    leaving, entry = launch.exit, launch.entry
    if launch.mode != "DECODE":
        return None
    if leaving is None or entry is None or not leaving.moved:
        return Verdict.UNKNOWN
    for row, rid in enumerate(launch.rids):
        window, accepted = entry.window[row], leaving.accept_lens[row]
        lanes = range(min(accepted, len(leaving.accept_index[row])))
        path = [leaving.accept_index[row][lane] for lane in lanes]
        if any(not 0 <= node < len(window) for node in path):
            continue  # no path at all, which is another rule's matter
        wanted = tuple((window[lane], window[node]) for lane, node in zip(lanes, path, strict=True))
        found = leaving.moved[row][:accepted]
        behind = [to for to, _source in leaving.moved[row][accepted:] if to >= step.config.page_size]
        if found != wanted or behind:
            return Clash(
                f"moved[{row}] (to, from) = {found} == {wanted}",
                f"forward {launch.number} moved the KV of {rid} to {[to for to, _ in found]} from "
                f"{[source for _, source in found]}, and behind its path to {behind}",
                f"it verified in the slots {window} and accepted the nodes {path} there",
                rid=rid,
            )
    return HOLDS if launch.rids else None


@oracle(
    "accepted-path-leads-the-window",
    formula="tree exit, live rows, d < accept_lens: (v1, v2) of window[d] == cell of the true token at C + d",
    clock=Clock.DEVICE,
    owner=Owner.SPEC_WORKER,
    scope=Scope.BATCH,
    point=Point.WORKER_EXIT,
    needs=TREE | Capability.CONTENT_VIEW | Capability.DEVICE_VIEW,
    source="sglang 0.5.23 speculative/eagle_worker_common _finalize_accept_tree_path; sglang #15360",
    twin="scattered-path-is-accepted",
)
def accepted_path_leads_the_window(step: Step, launch: LaunchView) -> Finding:
    """All that follows a verify takes the window for a chain's: the KV of the accepted path lies at its front."""
    leaving, entry, device = launch.exit, launch.entry, step.after.device
    if launch.mode != "DECODE":
        return None
    if leaving is None or entry is None or device is None:
        return Verdict.UNKNOWN
    finding: Finding = None
    for row, req in forward(step, launch).rows:
        base, window = entry.seq_lens[row], entry.window[row][: leaving.accept_lens[row]]
        if not 0 < base <= step.config.row_width or max(window, default=0) >= len(device.target_v1):
            continue
        text = step.ledger.requests[req.rid].text
        wanted = [text.target_cell(base + lane) for lane in range(len(window))]
        found = [(device.target_v1[slot], device.target_v2[slot]) for slot in window]
        if found != wanted:
            lane = next(at for at, (one, other) in enumerate(zip(found, wanted, strict=True)) if one != other)
            return Clash(
                f"(v1, v2) of window[{lane}] = slot {window[lane]} = {found[lane]} == {wanted[lane]}",
                f"forward {launch.number} accepted {len(window)} nodes of {req.rid} from {base} on, by level the nodes "
                f"{leaving.accept_index[row] if leaving.accept_index else 'unknown'}",
                f"slot {window[lane]} at the front of its window doesn't hold the KV of the token at {base + lane}",
                rid=req.rid,
            )
        finding = HOLDS
    return finding


@oracle(
    "bonus-ends-the-run",
    formula="tree exit: the bonus token of a row == the last token of its accepted run",
    clock=Clock.DEVICE,
    owner=Owner.SPEC_WORKER,
    scope=Scope.BATCH,
    point=Point.WORKER_EXIT,
    needs=TREE,
    source="sglang 0.5.23 speculative/eagle_worker_common run_eagle_verify fill_bonus_tokens",
    twin="two-rows-in-a-batch",
)
def bonus_ends_the_run(step: Step, launch: LaunchView) -> Finding:
    """The pending token is read out of the accepted tokens of all rows, spec_steps + 1 of them per row."""
    leaving = launch.exit
    if launch.mode != "DECODE":
        return None
    if leaving is None or not leaving.bonus:
        return Verdict.UNKNOWN
    for row, rid in enumerate(launch.rids):
        run = leaving.next_tokens[row]
        if run and leaving.bonus[row] != run[-1]:
            return Clash(
                f"bonus_tokens[{row}] = {leaving.bonus[row]} == {run[-1]}",
                f"forward {launch.number} hands on the token {leaving.bonus[row]} for {rid}",
                f"its accepted run is {run}",
                rid=rid,
            )
    return HOLDS if launch.rids else None
