"""Reachable goals of trees (topk > 1): what their rules need to have met."""

from __future__ import annotations

from specfuzz.core.capability import Capability
from specfuzz.core.event import Mix, Prefill
from specfuzz.core.oracle import Step, reachable
from specfuzz.oracles.facts import DEVICE_EVENTS

TREE = Capability.TREE | Capability.LAUNCH_VIEW


@reachable("tree-drafts-ahead-of-the-host", needs=TREE | Capability.OVERLAP, on=DEVICE_EVENTS)
def tree_drafts_ahead_of_the_host(step: Step) -> bool:
    """A tree is drafted at a frontier that the host has not settled and, with pages, in the middle of one."""
    size = step.config.page_size
    for view in step.after.launches:
        if view.entry_now and view.mode == "DECODE" and view.entry is not None:
            for there, here in zip(view.entry.seq_lens, view.committed, strict=True):
                if there > here and (size == 1 or there % size):
                    return True
    return False


@reachable("scattered-path-is-accepted", needs=TREE, on=DEVICE_EVENTS)
def scattered_path_is_accepted(step: Step) -> bool:
    """A tree accepts a path that doesn't lie at the front of its window, so that its KV must move."""
    for view in step.after.launches:
        if view.exit_now and view.exit is not None:
            for path in view.exit.accept_index:
                if any(node > lane for lane, node in enumerate(path)):
                    return True
    return False


@reachable("row-handed-on-in-flight", needs=Capability.OVERLAP | Capability.LAUNCH_VIEW, on=(Prefill, Mix))
def row_handed_on_in_flight(step: Step) -> bool:
    """A request is given a row that a forward in flight still carries for another one."""
    for rid, _prefix, _extend in step.receipt.admitted:
        row = step.after.reqs[rid].req_pool_idx
        for view in step.after.launches:
            if not view.settled and rid not in view.rids and row in view.req_pool_indices:
                return True
    return False
