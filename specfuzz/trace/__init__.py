"""Traces on disk and back: strict files, replay with a divergence report, event-level shrinking, the corpus."""

from specfuzz.trace.codec import dumps, load, loads
from specfuzz.trace.replay import FAULT, Divergence, Repeats, Replay, fault_identity, replay_many, replay_trace
from specfuzz.trace.shrink import Ran, Run, Shrunk, session_run, shrink_events, shrink_trace
from specfuzz.trace.store import Added, CorpusStore, Listing, Stored, save, write_atomically

__all__ = [
    "FAULT",
    "Added",
    "CorpusStore",
    "Divergence",
    "Listing",
    "Ran",
    "Repeats",
    "Replay",
    "Run",
    "Shrunk",
    "Stored",
    "dumps",
    "fault_identity",
    "load",
    "loads",
    "replay_many",
    "replay_trace",
    "save",
    "session_run",
    "shrink_events",
    "shrink_trace",
    "write_atomically",
]
