"""What one pytest process knows: its settings, the systems that are open, and what its tests came to."""

from __future__ import annotations

import os
import shlex
from functools import cached_property
from typing import TYPE_CHECKING, NoReturn

import pytest

from specfuzz.pytest_plugin.options import read_settings, seed_given
from specfuzz.suite.totals import CURRENT, Totals

if TYPE_CHECKING:
    from specfuzz.core.trace import Trace
    from specfuzz.suite.checking import MachineReport
    from specfuzz.suite.machine import Plan
    from specfuzz.suite.settings import Settings
    from specfuzz.suite.systems import OpenSystems


class State:
    """Made when pytest is configured. Settings and systems wait for the first of our tests; most sessions have none."""

    def __init__(self, config: pytest.Config, seed: int | None = None) -> None:
        """seed: of the process that this one works for; None takes the user's, or draws one."""
        given = seed_given(config)
        self.seed = given if given is not None else seed if seed is not None else int.from_bytes(os.urandom(4), "big")
        self.totals = Totals()
        self.outer = CURRENT.get()  # of a session that runs this one
        self._config = config

    @cached_property
    def settings(self) -> Settings:
        """Read once; raises pytest.UsageError."""
        return read_settings(self._config, self.seed)

    @cached_property
    def pool(self) -> OpenSystems:
        """The systems that stay open until the session ends."""
        from specfuzz.suite.systems import OpenSystems

        return OpenSystems()

    def close(self) -> None:
        """Close the systems, if any was opened."""
        if "pool" in vars(self):
            self.pool.close()

    # ------------------------------------------------------------------ what runs
    def check(self, plan: Plan, test: str, nodeid: str) -> None:
        """Run a machine; ends in pytest's fail, skip or xfail unless all holds.

        test: its name, the same in every process. nodeid: as the user may type it.
        """
        __tracebackhide__ = True
        import hypothesis

        from specfuzz.errors import MissingPart, SpecfuzzError
        from specfuzz.suite.checking import check

        try:
            report = check(
                plan, self.settings, test=test, again=f"pytest {shlex.quote(nodeid)}", pool=self.pool,
                database=hypothesis.settings().database,  # of the profile that the suite has loaded
            )  # fmt: skip
        except MissingPart as error:
            pytest.skip(str(error))
        except SpecfuzzError as error:
            pytest.fail(str(error), pytrace=False)
        self._count(report, test)
        broken = report.broken
        if broken:
            pytest.fail("\n\n".join(failure.text for failure in broken), pytrace=False)
        if report.failures:
            _xfail([f"{failure.identity}: {failure.known}" for failure in report.failures])
        if report.doubt is not None:
            pytest.fail(report.doubt, pytrace=False)

    def _count(self, report: MachineReport, test: str) -> None:
        totals = self.totals
        totals.tests += 1
        totals.examples += report.examples
        totals.events += report.events
        totals.replayed += report.replayed
        totals.count(report.applied)
        totals.problems += report.problems
        if report.left_out is not None:
            totals.left_out.append(f"{test}: {report.left_out}")
        for failure in report.failures:
            if failure.known is None:
                totals.violations.append(f"{failure.identity} {test}")
            else:
                totals.known.append(f"{failure.identity} {test}: {failure.known}")

    def check_trace(self, trace: Trace, path: str) -> None:
        """Replay a corpus trace; ends in pytest's fail, skip or xfail unless it came to what it must. path: shown."""
        __tracebackhide__ = True
        from specfuzz.core.judge import Tally
        from specfuzz.errors import MissingPart, SpecfuzzError
        from specfuzz.suite.regressions import judge_trace
        from specfuzz.suite.totals import applied_of

        tally, totals = Tally(), self.totals
        try:
            failure = judge_trace(trace, path, pool=self.pool, baseline=self.settings.baseline, tally=tally)
        except MissingPart as error:
            pytest.skip(str(error))
        except SpecfuzzError as error:
            pytest.fail(f"`{path}`: {error}", pytrace=False)
        totals.traces += 1
        totals.events += len(trace.steps)
        totals.count(applied_of(tally))
        if failure is None:
            return
        what = str(failure.identity or trace.expected or "holds")
        if failure.known is not None:
            totals.known.append(f"{what} {path}: {failure.known}")
            _xfail([f"{what}: {failure.known}"])
        if failure.identity is not None:
            totals.violations.append(f"{what} {path}")
        pytest.fail(failure.because, pytrace=False)


def _xfail(reasons: list[str]) -> NoReturn:
    pytest.xfail("known: " + "; ".join(reasons))
