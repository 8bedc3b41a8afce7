"""One rule per event. Its coarse precondition: some instance of the kind is legal now and the example doesn't mute it.

A rule draws one roll and decodes its arguments from it, so arguments are never filtered: they name subjects that are
legal now. What is illegal all the same is skipped by the session.
"""

from __future__ import annotations

from collections.abc import Callable

from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from specfuzz.core.event import Event, Idle, Prepare, Publish, Settle
from specfuzz.state_machine import decoding
from specfuzz.state_machine.scenes import Scene
from specfuzz.state_machine.strategies import FIRST_ROLL, KIND_BITS, rolls
from specfuzz.state_machine.tempers import Temper

# One object each: these events have no arguments.
_PREPARE, _PUBLISH, _SETTLE, _IDLE = Prepare(), Publish(), Settle(), Idle()


def bits_of(roll: int) -> int:
    """The part of a roll that arguments are decoded from."""
    return (roll - FIRST_ROLL) >> KIND_BITS


def _on_offer(kind: str) -> Callable[[EventRules], bool]:
    def is_on_offer(machine: EventRules) -> bool:
        return machine.is_on_offer(kind)

    return is_on_offer


class EventRules(RuleBasedStateMachine):
    """The rules alone. `scene`, `temper`, `is_on_offer` and `apply` come from the machine."""

    scene: Scene
    temper: Temper

    def is_on_offer(self, kind: str) -> bool:
        """Whether some event of that kind is legal now and not muted."""
        raise NotImplementedError

    def apply(self, event: Event) -> None:
        """Take the event as the next step."""
        raise NotImplementedError

    @precondition(_on_offer("submit"))
    @rule(roll=rolls())
    def submit(self, roll: int) -> None:
        """A new request joins the waiting queue."""
        self.apply(decoding.submit_of(self.scene, bits_of(roll), brief=self.temper.brief, lengthy=self.temper.lengthy))

    @precondition(_on_offer("prefill"))
    @rule(roll=rolls())
    def prefill(self, roll: int) -> None:
        """A waiting request is admitted and its extend launched."""
        self.apply(decoding.prefill_of(self.scene, bits_of(roll)))

    @precondition(_on_offer("mix"))
    @rule(roll=rolls())
    def mix(self, roll: int) -> None:
        """A waiting request is admitted and the running rows ride along."""
        self.apply(decoding.mix_of(self.scene, bits_of(roll)))

    @precondition(_on_offer("prepare"))
    @rule(roll=rolls())
    def prepare(self, roll: int) -> None:
        """The next decode is prepared."""
        self.apply(_PREPARE)

    @precondition(_on_offer("verify"))
    @rule(roll=rolls())
    def verify(self, roll: int) -> None:
        """The prepared batch is launched."""
        self.apply(decoding.verify_of(self.scene, bits_of(roll)))

    @precondition(_on_offer("publish"))
    @rule(roll=rolls())
    def publish(self, roll: int) -> None:
        """The device gets as far as the oldest pending publish."""
        self.apply(_PUBLISH)

    @precondition(_on_offer("advance"))
    @rule(roll=rolls())
    def advance(self, roll: int) -> None:
        """One stream of the device runs a few operations."""
        self.apply(decoding.advance_of(bits_of(roll)))

    @precondition(_on_offer("settle"))
    @rule(roll=rolls())
    def settle(self, roll: int) -> None:
        """The oldest result is processed on the host."""
        self.apply(_SETTLE)

    @precondition(_on_offer("finish"))
    @rule(roll=rolls())
    def finish(self, roll: int) -> None:
        """A stop token is armed near the decided end of a request."""
        self.apply(decoding.finish_of(self.scene, bits_of(roll)))

    @precondition(_on_offer("abort"))
    @rule(roll=rolls())
    def abort(self, roll: int) -> None:
        """A client gives up on a request."""
        self.apply(decoding.abort_of(self.scene, bits_of(roll)))

    @precondition(_on_offer("retract"))
    @rule(roll=rolls())
    def retract(self, roll: int) -> None:
        """A running request is released and queued again."""
        self.apply(decoding.retract_of(self.scene, bits_of(roll)))

    @precondition(_on_offer("evict"))
    @rule(roll=rolls())
    def evict(self, roll: int) -> None:
        """The prefix tree gives up tokens."""
        self.apply(decoding.evict_of(bits_of(roll)))

    @precondition(_on_offer("idle"))
    @rule(roll=rolls())
    def idle(self, roll: int) -> None:
        """Everything is settled and drained, and the idle checks run."""
        self.apply(_IDLE)
