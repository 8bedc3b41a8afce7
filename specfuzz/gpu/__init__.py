"""The device port: streams, events and memory with two faces, a simulated device on CPU and a real one on CUDA."""

from specfuzz.gpu.device import STREAMS, Buffer, Device, Event, Stream
from specfuzz.gpu.memory import POISON
from specfuzz.gpu.opening import open_device
from specfuzz.gpu.races import Access, Race

__all__ = ["POISON", "STREAMS", "Access", "Buffer", "Device", "Event", "Race", "Stream", "open_device"]
