"""Where failures are kept: one folder for all tests, in it one for each test."""

from __future__ import annotations

import hashlib
import os
import re
from pathlib import Path

from specfuzz.errors import StoreError

#: Unless the session says otherwise, below its root.
CORPUS = ".specfuzz"
#: Below the corpus folder: what tests keep for themselves.
FOLDER = "tests"


def folder_of(corpus: Path, test: str) -> Path:
    """The folder of one test: a name for people, and a digest that keeps apart what has the same name elsewhere."""
    last = re.sub(r"[^A-Za-z0-9_]+", "-", test.rpartition("::")[2])[:60]
    return corpus / FOLDER / f"{last}-{hashlib.blake2b(test.encode(), digest_size=4).hexdigest()}"


def check_place(corpus: Path) -> None:
    """Raise StoreError unless failures could be kept below this folder; nothing is created."""
    place = corpus.absolute()
    try:
        while not place.exists() and place != place.parent:
            place = place.parent
    except OSError as error:
        raise StoreError(f"failures can't be kept in `{corpus}`: {error.strerror or error}.") from None
    if not place.is_dir():
        raise StoreError(f"failures can't be kept in `{corpus}`: `{place}` is not a folder.")
    if not os.access(place, os.W_OK | os.X_OK):
        raise StoreError(f"failures can't be kept in `{corpus}`: no permission for `{place}`.")
