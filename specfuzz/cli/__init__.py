"""The command line: one file per verb, one JSON object or one report per call, exit statuses that mean something."""

from specfuzz.cli.main import main

__all__ = ["main"]
