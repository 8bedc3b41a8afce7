"""The state machine: one session per example, one event per step, an exception type of its own per violation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from hypothesis.internal.conjecture.data import ConjectureData
from hypothesis.stateful import Rule, initialize
from hypothesis.strategies import SearchStrategy

from specfuzz.core.event import Event
from specfuzz.session import Session
from specfuzz.state_machine.decoding import LONGEST_REQUEST
from specfuzz.state_machine.findings import violation_found
from specfuzz.state_machine.offers import Offers, offers
from specfuzz.state_machine.profiles import PROFILES, Profile
from specfuzz.state_machine.rules import EventRules
from specfuzz.state_machine.scenes import Scene
from specfuzz.state_machine.strategies import FIRST_ROLL, KIND_BITS, LAST_ROLL, rolls
from specfuzz.state_machine.tempers import temper_of

_KIND_MASK = (1 << KIND_BITS) - 1


class _WeightedRules(SearchStrategy[Any]):
    """Chooses rule and arguments with one draw, by weight.

    Hypothesis' own strategy draws a rule uniformly and filters: a random choice may be rejected, each rejection is a
    choice of its own, and every rule's precondition is asked each time. That is more than half of the cost of a step,
    and it can't weigh. A Hypothesis that doesn't ask `_rules_strategy` chooses among the same rules, unweighted.
    """

    def __init__(self, machine: SpecMachine) -> None:
        super().__init__()
        self._machine = machine

    def do_draw(self, data: ConjectureData) -> tuple[Rule, dict[str, Any]]:
        roll = data.draw_integer(FIRST_ROLL, LAST_ROLL)
        return self._machine.choose(roll), {"roll": roll}


@dataclass(frozen=True, slots=True, kw_only=True)
class Hooks:
    """What `make_machine` was given."""

    new_session: Callable[[], Session]
    on_end: Callable[[Session], None] | None
    weighted: bool


class SpecMachine(EventRules):
    """Chooses events for one session; subclasses made by `make_machine` know how to open it."""

    hooks: ClassVar[Hooks]
    profile: ClassVar[Profile] = PROFILES["dev"]
    _rule_of: ClassVar[dict[str, Rule]]

    def __init__(self) -> None:
        """Open a fresh session and forget everything else."""
        super().__init__()
        self.session = self.hooks.new_session()
        self.temper = temper_of(0, self.session.config.max_reqs)
        self._offers: Offers | None = None
        self._pressed = False
        if "_rule_of" not in vars(type(self)):
            type(self)._rule_of = {made.function.__name__: made for made in self.rules}
        if self.hooks.weighted:
            self._rules_strategy = _WeightedRules(self)  # type: ignore[assignment]

    @initialize(roll=rolls())
    def set_temper(self, roll: int) -> None:
        """Swarm: which families this example favours and mutes."""
        config = self.session.config
        scarce = config.pool_tokens < LONGEST_REQUEST + config.reserve_per_decode
        self.temper = temper_of(roll - FIRST_ROLL, config.max_reqs, self.profile.swarm, scarce=scarce)

    def look(self) -> Offers:
        """What is on offer now; looked up once per step."""
        if self._offers is None:
            self.scene = Scene(self.session.ledger)
            closing = self.temper.closing
            if closing is not None and self.scene.live == 0 and self.session.ledger.events >= closing:
                self.temper = replace(self.temper, closing=None)  # everybody has left: the server opens again
            self._offers = offers(self.scene, self.temper, pressed=self._pressed)
        return self._offers

    def choose(self, roll: int) -> Rule:
        """The rule that a roll stands for; low bits, by weight."""
        found = self.look()
        total = 0
        for _kind, weight in found:
            total += weight
        point = ((roll - FIRST_ROLL) & _KIND_MASK) * total >> KIND_BITS
        for kind, weight in found:
            point -= weight
            if point < 0:
                return self._rule_of[kind]
        return self._rule_of[found[-1][0]]  # unreachable: point < total

    def is_on_offer(self, kind: str) -> bool:
        """Whether some event of that kind is legal now and not muted."""
        return any(kind == offered for offered, _weight in self.look())

    def apply(self, event: Event) -> None:
        """Take one step; raises the violation's own exception type, or EngineFault."""
        self._offers = None
        session = self.session
        if session.step(event):
            raise violation_found(session.violations, session.trace())
        if session.steps:
            receipt = session.steps[-1].receipt
            if receipt.refused is not None:
                self._pressed = True
            elif receipt.finished or receipt.retracted or receipt.evicted:
                self._pressed = False

    def teardown(self) -> None:
        """Hand the ended session to whoever counts, and let go of it: Hypothesis keeps machines in reference cycles."""
        session = vars(self).pop("session")
        vars(self).pop("scene", None)
        if self.hooks.on_end is not None:
            self.hooks.on_end(session)


def make_machine(
    new_session: Callable[[], Session],
    *,
    profile: Profile = PROFILES["dev"],
    on_end: Callable[[Session], None] | None = None,
    weighted: bool = True,
) -> type[SpecMachine]:
    """A machine class for one configuration: every example runs in `new_session()`.

    on_end: gets the session of every example, also of one that ends in a violation or a fault. weighted: False leaves
    the choice of the rule to Hypothesis, which is slower and hardly ever gets as far as a verify; for comparisons.
    """
    body = {
        "__doc__": SpecMachine.__doc__,
        "__module__": __name__,
        "hooks": Hooks(new_session=new_session, on_end=on_end, weighted=weighted),
        "profile": profile,
    }
    return type("SpecMachine", (SpecMachine,), body)
