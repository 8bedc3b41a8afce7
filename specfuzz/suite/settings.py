"""What a session decides for all of its machines: seed, profile, budget, known findings, where failures go."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path

from specfuzz.campaign.baseline import Baseline
from specfuzz.state_machine import PROFILES, Profile


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """seed: fixes every example of every machine. profile: of all machines, None leaves it to each.

    max_examples: per machine, over all of its configurations; None = as the profile says. corpus: folder.
    """

    corpus: Path
    seed: int = 0
    profile: Profile | None = None
    max_examples: int | None = None
    baseline: Baseline = field(default_factory=Baseline)

    def profile_for(self, own: Profile | None) -> Profile:
        """The profile to run with: the session's, else the machine's own, else `dev`."""
        chosen = self.profile or own or PROFILES["dev"]
        return chosen if self.max_examples is None else replace(chosen, max_examples=self.max_examples)
