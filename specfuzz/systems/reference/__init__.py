"""The adapter of the reference engine: events in, receipts and snapshots out. The engine doesn't know of it."""

from specfuzz.systems.reference.system import ReferenceSystem

__all__ = ["ReferenceSystem"]
