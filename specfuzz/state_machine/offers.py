"""Which kinds of event are on offer in a scene and with which weight: legality, temper, steering to rare events."""

from __future__ import annotations

from specfuzz.state_machine.scenes import Scene
from specfuzz.state_machine.tempers import Temper

Offers = list[tuple[str, int]]

#: Live and waiting requests beyond the rows of the engine; more would only queue up.
SPARE_REQUESTS = 2


#: Weight of an abort while requests wait that a closing server doesn't take any more.
TURN_AWAY = 48

#: How much more an idle check is wanted while no request holds a row: such moments are short.
WHEN_EMPTY = 24


def offers(scene: Scene, temper: Temper, *, pressed: bool = False) -> Offers:
    """(kind, weight) of everything that is legal now and not muted; the first is the engine's natural step.

    pressed: a prefill was refused, and nothing has been given back since. Never empty: with nothing live a submit is on
    offer, with something live a launch, a verify, a settle or an abort; else an idle.
    """
    weights, config, found = temper.weights, scene.config, []
    in_flight = scene.in_flight
    if in_flight and not config.overlap:  # a launch and its settle are one step of the loop; the device may progress
        found = [("settle", weights["settle"] * 3)]
        _add(found, "advance", weights["advance"])
        _add(found, "idle", weights["idle"])
        return found
    running, waiting, prepared = scene.running, scene.waiting, scene.prepared
    rows = len(running)
    closing = temper.closing is not None and scene.ledger.events >= temper.closing
    if prepared is not None:
        found.append(("verify", weights["verify"]))
    elif scene.may_launch:
        if waiting:
            # A prefill beyond the rows or the pool is refused: a rare sight is enough.
            scale = 0 if pressed or closing or rows >= config.max_reqs else 8 if rows < temper.rows else 1
            found.append(("prefill", weights["prefill"] * scale or 1))
            if config.mixed_chunk and running:
                found.append(("mix", weights["mix"] * scale or 1))
        if running:
            found.append(("prepare", weights["prepare"]))
    if in_flight:
        # Two in flight: the loop's next host step. One: whether the next launch overlaps is the interesting choice.
        found.append(("settle", weights["settle"] * (2 if in_flight > 1 or not running else 1)))
    if scene.live < config.max_reqs + SPARE_REQUESTS and not (closing and scene.live):
        scale = 64 if not scene.live else 40 if scene.live < temper.rows else 1
        found.append(("submit", weights["submit"] * scale))
    if scene.unpublished:
        # Where an FSM may refuse what the device has decided, look at that before the host has to take it.
        _add(found, "publish", weights["publish"] * (4 if config.grammar else 1))
    if scene.ledger.launches:  # work may be pending behind a settled result as well
        _add(found, "advance", weights["advance"] if in_flight else min(1, weights["advance"]))
    if scene.finishable:
        # An armed stop near the decided end makes the next accepted run end inside.
        _add(found, "finish", weights["finish"] if rows else weights["finish"] // 4)
    if scene.abortable:
        if closing and waiting:
            found.append(("abort", TURN_AWAY))
        else:  # in flight, an abort waits for a result; half a prompt is a rare sight
            scale = 112 if scene.chunked else 2 if scene.carried else 1
            _add(found, "abort", weights["abort"] * scale // 2)
    if running and scene.may_launch:
        # In flight, the row dies while a launch carries it.
        _add(found, "retract", weights["retract"] * 2 if in_flight else weights["retract"])
    if prepared is None and (scene.ended or rows):
        _add(found, "evict", weights["evict"] if config.radix else 1)
    # With no row held, the idle checks have the whole pool to count.
    empty = scene.ended and not running and not in_flight
    _add(found, "idle", weights["idle"] * (WHEN_EMPTY if empty else 1))
    # With the rest muted, an aborted chunk in a full house waits for a scheduling step that nobody takes.
    return found or [("idle", 1)]


def _add(found: Offers, kind: str, weight: int) -> None:
    if weight > 0:
        found.append((kind, weight))
