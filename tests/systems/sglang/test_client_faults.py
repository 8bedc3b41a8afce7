"""An engine process that hangs, dies or says nonsense is a finding or a clear refusal, never a stuck client."""

from __future__ import annotations

import os
import signal
import stat
import time
from pathlib import Path

import pytest

from specfuzz.core import event as ev
from specfuzz.core.config import EngineConfig
from specfuzz.errors import ConfigError, EngineFault, MissingPart
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


STEPPED = "protocol.Stepped(difference=protocol.Difference(reqs={}, waiting=(), running=(), chunked=(), prepared=None, "
STEPPED += "queue=(), writes=None, on_idle=False))"
#: What the process does about the first request after `Load`, and what is said about it.
NONSENSE = {
    "no frame": ("frames.write(b'\\0\\0\\0\\3abc'); frames.flush()", "what is no answer"),
    "no text": ("frames.write(b'\\0\\0\\0\\2\\xa1\\xff'); frames.flush()", "what is no answer"),
    "a print": ("frames.write(b'Loading model weights...\\n'); frames.flush()", "a frame beyond the size limit"),
    "wrong types": ("protocol.send(frames, {'type': 'Stepped', 'difference': 3})", "what is no answer"),
    "an answer to another question": ("protocol.send(frames, protocol.Loaded(1, '0', '', True))", "a `Loaded`"),
    "half an answer": (f"protocol.send(frames, {STEPPED})", "a `Stepped` that is no answer to"),
    "two answers": (
        "import io; one = io.BytesIO(); protocol.send(one, protocol.Failed('engine', 'no')); "
        "frames.write(2 * one.getvalue()); frames.flush()",
        "more than one answer",
    ),
}  # fmt: skip
REQUESTS = {"reset": protocol.Reset(config=EngineConfig()), "apply": protocol.pack(ev.Settle())}


@pytest.mark.parametrize("request_name", REQUESTS)
@pytest.mark.parametrize(("body", "said"), NONSENSE.values(), ids=NONSENSE.keys())
def test_nonsense_is_a_fault_and_ends_the_process(tmp_path: Path, body: str, said: str, request_name: str) -> None:
    engine = process(tmp_path, f"protocol.receive(sys.stdin.buffer); {body}\ntime.sleep(60)")
    with pytest.raises(EngineFault, match=said) as raised:
        engine.ask(REQUESTS[request_name], 30)
    assert (raised.value.kind, raised.value.where) == ("crash", "protocol")
    assert not engine.alive
    engine.close()


def test_an_answer_before_the_question_is_a_fault(tmp_path: Path) -> None:
    started = tmp_path / "started"  # the answer must not come while the engine is being loaded: that is another fault
    engine = process(
        tmp_path,
        f"import os\nwhile not os.path.exists({str(started)!r}): time.sleep(0.01)\n"
        "protocol.send(frames, protocol.Failed('engine', 'no')); time.sleep(60)",
    )
    started.touch()
    with pytest.raises(EngineFault, match="nobody has asked for"):
        engine._selector.select(30)
        engine.ask(protocol.pack(ev.Settle()), 30)
    engine.close()


def test_a_step_that_is_refused_as_a_configuration_is_a_fault(tmp_path: Path) -> None:
    body = "protocol.receive(sys.stdin.buffer); protocol.send(frames, protocol.Failed('config', 'no such size'))\n" * 2
    engine = process(tmp_path, body)
    with pytest.raises(ConfigError, match="no such size"):
        engine.ask(protocol.Reset(config=EngineConfig()), 30)
    with pytest.raises(EngineFault, match="no such size"):
        engine.ask(protocol.pack(ev.Settle()), 30)
    engine.close()


@pytest.mark.parametrize("says", ["echo Loading model weights...", "printf '\\0\\0\\0\\3abc'", "true"])
def test_nonsense_instead_of_a_start_is_a_missing_part(tmp_path: Path, says: str) -> None:
    script = tmp_path / "python"
    script.write_text(f"#!/bin/sh\n{says}\ncat >/dev/null\n", encoding="utf-8")
    script.chmod(0o755)
    if says == "true":
        script.write_text("#!/bin/sh\nexit 0\n", encoding="utf-8")
    with pytest.raises(MissingPart, match="the engine process could not start"):
        client.EngineProcess(script)


def test_an_interrupt_leaves_no_process_and_no_answer_behind(tmp_path: Path) -> None:
    engine = process(tmp_path, "time.sleep(60)")
    signal.signal(signal.SIGALRM, signal.default_int_handler)
    signal.setitimer(signal.ITIMER_REAL, 0.2)
    with pytest.raises(KeyboardInterrupt):
        engine.ask(protocol.pack(ev.Settle()), 30)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    assert not engine.alive
    engine.close()


def test_an_engine_that_is_gone_amid_a_run_is_a_fault(tmp_path: Path) -> None:
    python = fake_python(tmp_path, "protocol.receive(sys.stdin.buffer)")
    system = client.RemoteSglang(python)
    python.unlink()
    for message in ("the engine process ended", "can't be started again"):
        with pytest.raises(EngineFault, match=message):
            system.reset(EngineConfig())
    system.close()
