"""Opens a device by its kind; the simulated one and the real one are imported only when they are asked for."""

from __future__ import annotations

from specfuzz.errors import DeviceFault
from specfuzz.gpu.device import Device


def open_device(kind: str, *, check_races: bool = True, delay_seed: int | None = None) -> Device:
    """Open the simulated device ("cpu") or the current CUDA device ("cuda").

    check_races=False makes the declarations of kernels free of charge. delay_seed: cuda only, injects seeded delays
    before operations so that streams drift apart. Raises DeviceFault if `kind` is unknown, or if CUDA isn't there (then
    it is a MissingPart as well).
    """
    if kind == "cpu":
        from specfuzz.gpu.virtual import VirtualDevice

        return VirtualDevice(check_races=check_races)
    if kind == "cuda":
        from specfuzz.gpu.cuda import CudaDevice

        return CudaDevice(check_races=check_races, delay_seed=delay_seed)
    raise DeviceFault(f"unknown device `{kind}`: use `cpu` or `cuda`.")
