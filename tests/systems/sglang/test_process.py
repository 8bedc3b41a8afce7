"""The engine process under stress: a stopped, killed or abandoned one is a finding and never an orphan."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from specfuzz.core.config import EngineConfig
from specfuzz.core.event import Prefill, Settle, Submit
from specfuzz.core.port import OpenOptions
from specfuzz.errors import EngineFault, MissingPart
from specfuzz.systems.sglang import open_sglang
from specfuzz.systems.sglang.client import RemoteSglang

pytestmark = [pytest.mark.engine("sglang"), pytest.mark.slow]

CONFIG = EngineConfig()


def opened(step_timeout: float) -> RemoteSglang:
    system = open_sglang("", OpenOptions(step_timeout=step_timeout))
    if not isinstance(system, RemoteSglang):
        pytest.skip("SGLang is importable here and runs in-process")
    return system


def pid_of(system: RemoteSglang) -> int:
    assert system._process is not None
    return system._process.pid


def test_a_hang_and_a_crash_are_findings_and_the_next_run_works() -> None:
    system = opened(step_timeout=3.0)
    system.reset(CONFIG)
    os.kill(pid_of(system), signal.SIGSTOP)
    with pytest.raises(EngineFault) as hang:
        system.apply(Submit("a", 4, 4))
    assert hang.value.kind == "hang"
    system.reset(CONFIG)
    system.apply(Submit("a", 4, 4))
    os.kill(pid_of(system), signal.SIGKILL)
    with pytest.raises(EngineFault) as crash:
        system.apply(Prefill("a"))
    assert crash.value.kind == "crash"
    system.close()


def test_an_exception_of_the_engine_names_its_place_and_the_process_lives_on() -> None:
    system = opened(step_timeout=30.0)
    system.reset(CONFIG)
    pid = pid_of(system)
    with pytest.raises(EngineFault, match=r"IndexError: .* at .*driver\.py") as fault:
        system.apply(Settle())  # not legal: nothing is in flight
    assert fault.value.kind == "exception"
    system.reset(CONFIG)
    assert pid_of(system) == pid
    system.close()


OWNER = """
import sys, time
from specfuzz.core.port import OpenOptions
from specfuzz.systems.sglang import open_sglang
system = open_sglang("", OpenOptions())
print(system._process.pid, flush=True)
time.sleep(600)
"""


def test_an_engine_process_ends_when_its_owner_is_killed() -> None:
    opened(step_timeout=30.0).close()
    owner = subprocess.Popen([sys.executable, "-c", OWNER], stdout=subprocess.PIPE, text=True, cwd=Path.cwd())
    assert owner.stdout is not None
    pid = int(owner.stdout.readline())
    owner.kill()
    owner.wait()
    owner.stdout.close()
    try:
        watched = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    ended, _, _ = select.select([watched], [], [], 30)
    os.close(watched)
    if not ended:
        os.kill(pid, signal.SIGKILL)
        pytest.fail(f"engine process {pid} outlived its owner")


def test_a_checkout_with_moved_names_is_one_clear_sentence(tmp_path: Path) -> None:
    opened(step_timeout=30.0).close()
    package = tmp_path / "sglang"
    (package / "srt").mkdir(parents=True)
    (package / "__init__.py").write_text("__version__ = '9.9'\n", encoding="utf-8")
    (package / "srt" / "__init__.py").touch()
    with pytest.raises(MissingPart, match=r"this SGLang \(9\.9\) differs from 0\.5\.23.*managers\.scheduler is gone"):
        open_sglang("", OpenOptions(engine_path=str(tmp_path)))
