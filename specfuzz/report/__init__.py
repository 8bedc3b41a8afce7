"""Reports: a violation explained by three clocks, as text for people and as JSON for programs."""

from specfuzz.report.console import width_of, write
from specfuzz.report.explain import ClockTable, clock_table
from specfuzz.report.json import envelope, error_kind, error_object, fault_object, violation_object
from specfuzz.report.recording import Moment, Recording, record
from specfuzz.report.text import plain, render_failure, render_fault

__all__ = [
    "ClockTable",
    "Moment",
    "Recording",
    "clock_table",
    "envelope",
    "error_kind",
    "error_object",
    "fault_object",
    "plain",
    "record",
    "render_failure",
    "render_fault",
    "violation_object",
    "width_of",
    "write",
]
