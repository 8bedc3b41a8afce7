"""The adapter of the reference engine: events in, receipts and snapshots out. The engine doesn't know that it is there."""

from specfuzz.systems.reference.system import ReferenceSystem

__all__ = ["ReferenceSystem"]
