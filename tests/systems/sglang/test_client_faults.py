"""An engine process that hangs, dies or says nonsense is a finding or a clear refusal, never a stuck client."""

from __future__ import annotations

import os
import stat
import time
from pathlib import Path

import pytest

from specfuzz.core import event as ev
from specfuzz.core.config import EngineConfig
from specfuzz.errors import EngineFault, MissingPart
from specfuzz.systems.sglang import client, protocol

#: A stand-in for the engine environment's interpreter: it answers `Load`, then does what the test says.
SERVER = """#!{python}
import sys, time
sys.path.insert(0, {root!r})
from specfuzz.systems.sglang import protocol
frames = sys.stdout.buffer
protocol.receive(sys.stdin.buffer)
protocol.send(frames, protocol.Loaded(protocol=protocol.PROTOCOL, version="0", path="", recording=True))
{body}
"""


def fake_python(folder: Path, body: str) -> Path:
    import sys

    script = folder / "python"
    root = str(Path(client.__file__).parents[3])
    script.write_text(SERVER.format(python=sys.executable, root=root, body=body), encoding="utf-8")
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    return script


def process(folder: Path, body: str) -> client.EngineProcess:
    return client.EngineProcess(fake_python(folder, body))


def test_a_hang_is_a_fault_and_leaves_no_process(tmp_path: Path) -> None:
    engine = process(tmp_path, "time.sleep(60)")
    start = time.monotonic()
    with pytest.raises(EngineFault) as raised:
        engine.ask(protocol.pack(ev.Settle()), 0.3)
    assert raised.value.kind == "hang"
    assert time.monotonic() - start < 10
    assert not engine.alive
    engine.close()


def test_a_crash_is_a_fault_that_quotes_the_last_words(tmp_path: Path) -> None:
    engine = process(tmp_path, "protocol.receive(sys.stdin.buffer); sys.exit('out of luck')")
    with pytest.raises(EngineFault, match="out of luck") as raised:
        engine.ask(protocol.pack(ev.Settle()), 30)
    assert raised.value.kind == "crash"
    engine.close()


def test_an_exception_of_the_engine_is_a_fault_and_the_process_goes_on(tmp_path: Path) -> None:
    body = """
for _ in range(2):
    protocol.receive(sys.stdin.buffer)
    protocol.send(frames, protocol.Failed(kind="engine", message="ValueError: no"))
protocol.receive(sys.stdin.buffer)
"""
    engine = process(tmp_path, body)
    for _ in range(2):
        with pytest.raises(EngineFault, match="ValueError: no"):
            engine.ask(protocol.Reset(config=EngineConfig()), 30)
        assert engine.alive
    engine.close()
    assert not engine.alive


def test_a_closed_pipe_ends_the_process(tmp_path: Path) -> None:
    engine = process(tmp_path, "protocol.receive(sys.stdin.buffer)")
    pid = engine.pid
    engine.close()
    engine.close()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_an_environment_that_can_not_start_is_a_missing_part(tmp_path: Path) -> None:
    script = tmp_path / "python"
    script.write_text("#!/bin/sh\necho 'no such module: sglang' >&2\nexit 1\n", encoding="utf-8")
    script.chmod(0o755)
    with pytest.raises(MissingPart, match="no such module: sglang"):
        client.EngineProcess(script)
