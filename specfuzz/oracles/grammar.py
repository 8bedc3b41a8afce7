"""Rules of constrained decoding: what the FSM of a request has accepted, and what its vocab masks let through."""

from __future__ import annotations

from specfuzz.core.capability import Capability
from specfuzz.core.clock import Clock, Owner, Point, Scope
from specfuzz.core.event import Idle, Settle
from specfuzz.core.language import STOP_TOKEN
from specfuzz.core.oracle import Step, oracle
from specfuzz.core.snapshot import LaunchView, ReqView
from specfuzz.core.verdict import Clash, Finding, Verdict
from specfuzz.oracles.facts import DEVICE_EVENTS, LEDGER_EVENTS, forward, is_dead, is_live, lived_rows, retained

HOLDS = Verdict.HOLDS


@oracle(
    "grammar-accepts-what-is-emitted",
    formula="tokens that the FSM has accepted == output_ids + runs of the unsettled results that were accepted early",
    clock=Clock.HOST,
    owner=Owner.GRAMMAR,
    scope=Scope.REQUEST,
    needs=Capability.GRAMMAR | Capability.LAUNCH_VIEW,
    on=LEDGER_EVENTS,
    source="sglang 0.5.23 managers/scheduler_components/batch_result_processor advance_grammar_fsm",
    twin="grammar-accepts-early",
)
def grammar_accepts_what_is_emitted(step: Step, req: ReqView) -> Finding:
    """Every emitted token moves the FSM once: no draft that was only tried, no run of a dead row, nothing twice."""
    if req.grammar_accepted is None:
        return None
    wanted = req.output_ids
    for view in step.after.launches:
        if is_dead(req):
            break  # before a result is accepted early, the one ahead of it has been processed: the engine knew
        if view.grammar_advanced and req.rid in view.rids:
            if view.exit is None:
                return Verdict.UNKNOWN
            known = forward(step, view)
            if req.rid not in known.middle:
                wanted += retained(step, req.rid, view.exit.next_tokens[view.rids.index(req.rid)])
    if req.grammar_accepted == wanted:
        return HOLDS if wanted else None
    return Clash(
        f"accepted({req.rid}) = {req.grammar_accepted} == {wanted}",
        f"the FSM of {req.rid} has accepted {len(req.grammar_accepted)} tokens",
        f"{len(req.output_ids)} are emitted, and {len(wanted) - len(req.output_ids)} of a result in flight were due",
    )


@oracle(
    "grammar-ends-with-the-stop",
    formula="FSM terminated == its last accepted token is the stop token",
    clock=Clock.HOST,
    owner=Owner.GRAMMAR,
    scope=Scope.REQUEST,
    needs=Capability.GRAMMAR,
    on=LEDGER_EVENTS,
    changed_only=True,
    source="sglang 0.5.23 speculative/spec_utils traverse_tree; vLLM #25905",
    twin="grammar-terminates",
)
def grammar_ends_with_the_stop(step: Step, req: ReqView) -> Finding:
    """A walk over drafts that comes to the end of the text has to take that back as well."""
    accepted = req.grammar_accepted
    if not accepted:
        return None
    ended = accepted[-1] == STOP_TOKEN
    if req.grammar_terminated == ended:
        return HOLDS
    return Clash(
        f"terminated({req.rid}) = {req.grammar_terminated} == {ended}",
        f"the FSM of {req.rid} accepted {accepted[-1]} last",
        f"it says that its text is {'' if req.grammar_terminated else 'not '}complete",
    )


@oracle(
    "decided-tokens-are-allowed",
    formula=(
        "worker exit, rows that were live: the token at which a row's grammar has to end is the stop token, wherever "
        "in the run it comes, and no other one is unless a stop was armed there"
    ),
    clock=Clock.DEVICE,
    owner=Owner.GRAMMAR,
    scope=Scope.BATCH,
    point=Point.WORKER_EXIT,
    needs=Capability.GRAMMAR | Capability.LAUNCH_VIEW,
    on=DEVICE_EVENTS,
    source="sglang 0.5.23 managers/scheduler Scheduler._advance_pending_grammar; vLLM #49738",
    twin="grammar-terminates",
)
def decided_tokens_are_allowed(step: Step, launch: LaunchView) -> Finding:
    """The masks of a verify belong to the FSM as the result before it leaves it, and move on from node to node."""
    leaving = launch.exit
    if leaving is None:
        return Verdict.UNKNOWN
    known = forward(step, launch)
    finding: Finding = None
    for row, req in known.rows + _ended_now(step, launch):
        asked = step.ledger.requests[req.rid]
        end = asked.submit.grammar
        if req.rid in known.middle:
            continue
        # The run ends with the token at the new frontier.
        first = leaving.new_seq_lens[row] + 1 - len(leaving.next_tokens[row]) - req.prompt_len
        if asked.stop_at is not None and first > asked.stop_at:
            continue  # the row is dead, and nobody knows yet
        run = retained(step, req.rid, leaving.next_tokens[row])
        for index, token in enumerate(run, first):
            if (index == end - 1 and token != STOP_TOKEN) or (token == STOP_TOKEN and index != asked.stop_at):
                return Clash(
                    f"(token {index + 1} of {req.rid} is the stop token) = {token == STOP_TOKEN} == {index == end - 1}",
                    f"forward {launch.number} ({launch.mode}) decided {leaving.next_tokens[row]} for {req.rid}",
                    f"its first token is output token {first + 1}, "
                    f"{f'and its grammar ends with token {end}' if end else 'and it has no grammar'}",
                    rid=req.rid,
                )
        finding = HOLDS if end else finding
    return finding


def _ended_now(step: Step, launch: LaunchView) -> list[tuple[int, ReqView]]:
    """(row number, request) of the rows that have lived through this launch's result and finished in this event."""
    if not launch.settled:
        return []
    found = []
    for row, rid in enumerate(launch.rids):
        before, after = step.before.reqs.get(rid), step.after.reqs[rid]
        if after.finished_reason is None or before is None or not is_live(before):
            continue
        lived = lived_rows(step, after, len(after.output_ids) - len(before.output_ids))
        refused = after.finished_reason == "abort" and not step.ledger.requests[rid].aborted  # a token, by its FSM
        if refused or (lived is not None and any(known.number == launch.number for known, _row in lived)):
            found.append((row, after))
    return found


@oracle(
    "grammar-cuts-the-run",
    formula="constrained: the stop token is followed by nothing in output_ids",
    clock=Clock.HOST,
    owner=Owner.RESULT_PROCESSOR,
    scope=Scope.REQUEST,
    needs=Capability.GRAMMAR,
    on=(Settle, Idle),
    changed_only=True,
    source="sglang 0.5.23 managers/scheduler_components/batch_result_processor _accept_grammar_tokens; sglang #28682",
    twin="grammar-ends-inside-a-run",
)
def grammar_cuts_the_run(step: Step, req: ReqView) -> Finding:
    """What was accepted past the end of the text is neither committed nor emitted."""
    if req.grammar_accepted is None or STOP_TOKEN not in req.output_ids:
        return None
    behind = len(req.output_ids) - 1 - req.output_ids.index(STOP_TOKEN)
    if not behind:
        return HOLDS
    return Clash(
        f"{behind} tokens behind the end of {req.rid} == 0",
        f"the text of {req.rid} is complete after {len(req.output_ids) - behind} tokens",
        f"{len(req.output_ids)} were appended",
    )
