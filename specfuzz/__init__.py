"""specfuzz: fuzz the cross-round bookkeeping of speculative-decoding schedulers."""

__version__ = "0.1.0"
