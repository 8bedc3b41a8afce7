"""Generation only: a Hypothesis state machine that chooses events; it knows no system, oracle or engine by name."""

from specfuzz.state_machine.findings import ViolationFound, violation_type
from specfuzz.state_machine.machine import SpecMachine, make_machine
from specfuzz.state_machine.profiles import PROFILES, Profile, machine_settings
from specfuzz.state_machine.tempers import Temper

__all__ = [
    "PROFILES",
    "Profile",
    "SpecMachine",
    "Temper",
    "ViolationFound",
    "machine_settings",
    "make_machine",
    "violation_type",
]
