"""The entry point: runs one verb, prints its report or JSON object, and turns every error into one clear sentence."""

from __future__ import annotations

import contextlib
import errno
import importlib
import io
import json
import os
import sys
import time
from collections.abc import Sequence
from difflib import get_close_matches
from typing import Any

import click

from specfuzz import __version__
from specfuzz.cli.interrupts import caught, defer, interrupted_status
from specfuzz.cli.outcome import CANT_SAY, FINE, FOUND, INTERRUPTED, WRONG_USE, Outcome
from specfuzz.cli.streams import deliver, say, tidy_streams
from specfuzz.errors import EngineFault, SpecfuzzError, UsageError, tame

#: Verb -> what `specfuzz --help` says about it. The file of the same name holds it; it is imported when it is called.
VERBS = {
    "demo": "Find a planted bug, shrink it, show the three clocks.",
    "fuzz": "Fuzz a system: events chosen by Hypothesis, every step judged.",
    "replay": "Replay a trace or a line of events; check its verdict.",
    "shrink": "Shrink a trace to the smallest one with the same identity.",
    "explain": "Show the three clocks of a trace, event by event.",
    "prove": "Prove the integer lemmas of the ledger with CrossHair.",
    "mutants": "Does every planted bug die by the oracle that it names?",
    "oracles": "List what is judged: formula, clock, owner, source.",
    "algorithms": "List the speculative algorithms.",
    "systems": "List the engines behind the port; install a real one.",
    "conform": "Does a system or an algorithm keep its contract, clause by clause?",
    "corpus": "List, check, tidy and migrate stored traces; make the seeds.",
    "bench": "Measure events per second, with and without judging.",
}

#: What the operating system says when it has no more to give: nobody's mistake here.
_SCARCE = {errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN, errno.ENOSPC, errno.EDQUOT}


class _Interrupted(SpecfuzzError):
    """Ctrl-C or SIGTERM, whichever name Python and click have for it."""


class _Verbs(click.Group):
    """The verbs, imported when they are called, so that `--help` is quick and never imports torch."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in VERBS:
            return None
        command: click.Command = importlib.import_module(f"specfuzz.cli.{cmd_name}").command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if name not in VERBS and not name.startswith("-"):
            raise UsageError(f"there is no command `{name}`.{did_you_mean(name, VERBS)} Commands: {', '.join(VERBS)}.")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(VERBS.items()))


def did_you_mean(name: str, known: Sequence[str] | dict[str, Any]) -> str:
    """` Did you mean ...?` for the closest names, or nothing."""
    close = get_close_matches(name, list(known), n=2, cutoff=0.5)
    return f" Did you mean {' or '.join(f'`{c}`' for c in close)}?" if close else ""


@click.group(cls=_Verbs, context_settings={"help_option_names": ["-h", "--help"]}, no_args_is_help=False)
@click.version_option(__version__, prog_name="specfuzz", message="%(prog)s %(version)s")
def commands() -> None:
    """Fuzz the cross-round bookkeeping of speculative-decoding schedulers.

    Exit status: 0 fine; 1 a violation, a divergence or a survivor; 2 wrong use or unreadable input; 3 the run can't
    say; 4 a needed part is missing. With --json one object stands on stdout and nothing else.
    """


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command line and return its exit status; never raises for what a user can do."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch: text and digests don't depend on the machine's cores
    with tidy_streams():
        if sys.stdout is None:
            say("specfuzz: stdout is closed, so nothing could be reported; send it to /dev/null if nobody needs it.")
            return WRONG_USE
        with caught():
            try:
                return _run(arguments, time.monotonic())
            except KeyboardInterrupt:  # while the report was written, and not for the first time
                return interrupted_status() or INTERRUPTED


def _run(arguments: list[str], started: float) -> int:
    printed = io.StringIO()  # --help and --version print by themselves
    try:
        with contextlib.redirect_stdout(printed):
            outcome = commands.main(args=arguments, prog_name="specfuzz", standalone_mode=False)
    except EngineFault as fault:  # a finding, also where a verb looks for none
        outcome = _fault(fault, _seed(arguments))
    except SpecfuzzError as error:
        return _report_error(arguments, started, error, error.exit_status)
    except (click.Abort, KeyboardInterrupt):
        return _report_error(arguments, started, _Interrupted("interrupted."), interrupted_status() or INTERRUPTED)
    except click.ClickException as error:
        return _report_error(arguments, started, error, WRONG_USE)
    except Exception as error:
        return _report_error(arguments, started, error, CANT_SAY)
    if isinstance(outcome, Outcome):
        return _report(arguments, started, outcome)
    return deliver(lambda: _write(printed.getvalue())) or (outcome if isinstance(outcome, int) else FINE)


def _fault(fault: EngineFault, seed: int | None) -> Outcome:
    from specfuzz.report.json import fault_object
    from specfuzz.report.text import render_fault
    from specfuzz.trace.replay import fault_identity

    return Outcome(
        verdict="violated", status=FOUND, seed=seed,
        violations=[fault_object(str(fault), fault_identity(fault).phase, ())],
        lines=[*render_fault(fault, ())],
    )  # fmt: skip


def _report(arguments: list[str], started: float, outcome: Outcome) -> int:
    defer()
    message = "" if outcome.error is None else _message(outcome.error)
    if _wants_json(arguments):
        from specfuzz.report.json import envelope, error_kind

        more = dict(outcome.more)
        if outcome.error is not None:
            more["error"] = {"kind": error_kind(outcome.error), "message": message}
        failed = _print_json(
            envelope(
                _verb(arguments), seed=outcome.seed, seconds=time.monotonic() - started, verdict=outcome.verdict,
                violations=outcome.violations, **more,
            )
        )  # fmt: skip
    else:
        from specfuzz.report.console import write

        failed = deliver(lambda: write(outcome.lines))
    if message:
        say(f"specfuzz: {message}")
    return failed or outcome.status


def _report_error(arguments: list[str], started: float, error: BaseException, status: int) -> int:
    message, failed = _message(error), FINE
    if _wants_json(arguments):
        from specfuzz.report.json import error_object

        seconds = time.monotonic() - started
        failed = _print_json(
            error_object(_verb(arguments), error, seed=_seed(arguments), seconds=seconds, message=message)
        )
    say(f"specfuzz: {message}")
    return failed or status


def _print_json(data: dict[str, Any]) -> int:
    text = json.dumps(data, ensure_ascii=False) + "\n"
    return deliver(lambda: _write(text))


def _write(text: str) -> None:
    sys.stdout.write(text)


def _message(error: BaseException) -> str:
    """One clear sentence; for what is not the user's mistake also where it came from, for whoever mends it."""
    if isinstance(error, click.ClickException):
        return tame(_sentence(error))
    if isinstance(error, SpecfuzzError):
        return str(error)
    if isinstance(error, MemoryError) or getattr(error, "errno", None) in _SCARCE:
        return f"the machine has run out of something: {getattr(error, 'strerror', None) or 'no memory is left'}."
    import traceback

    traceback.print_exception(error)
    return tame(f"specfuzz itself failed: {error!r}. Please report it.")


def _sentence(error: click.ClickException) -> str:
    text = " ".join(error.format_message().split())
    context = getattr(error, "ctx", None)
    where = context.command_path if context is not None else "specfuzz"
    return f"{text[:1].lower()}{text[1:].rstrip('.')}{'' if text.endswith('?') else '.'} See `{where} --help`."


def _before_separator(arguments: list[str]) -> list[str]:
    return arguments[: arguments.index("--")] if "--" in arguments else arguments


def _wants_json(arguments: list[str]) -> bool:
    return any(word == "--json" or word.startswith("--json=") for word in _before_separator(arguments))


def _verb(arguments: list[str]) -> str:
    return tame(next((argument for argument in arguments if not argument.startswith("-")), ""))


def _seed(arguments: list[str]) -> int | None:
    """The seed that was asked for, even where the command line as a whole can't be read."""
    for at, argument in enumerate(_before_separator(arguments)):
        text = argument.partition("=")[2] if argument.startswith("--seed=") else ""
        if argument == "--seed" and at + 1 < len(arguments):
            text = arguments[at + 1]
        if text.isascii() and text.isdigit() and len(text) < 20:
            return int(text)
    return None
