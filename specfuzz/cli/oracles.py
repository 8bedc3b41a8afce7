"""`specfuzz oracles`: what is judged, by whom it would have to be mended, and where the rule comes from."""

from __future__ import annotations

import click
from rich.text import Text

from specfuzz.cli.flags import Flags, names_of, with_flags
from specfuzz.cli.outcome import FINE, Outcome
from specfuzz.cli.tables import declaration, paragraph, report_width
from specfuzz.core.capability import Capability
from specfuzz.core.event import VERBS
from specfuzz.core.oracle import ORACLES, Oracle


@click.command("oracles")
@click.argument("names", nargs=-1, metavar="[NAME]...")
@with_flags("json", "oracles", "seed")
def command(flags: Flags, names: tuple[str, ...]) -> Outcome:
    """List the oracles; with names, only those and in full."""
    asked = (*names_of(names), *names_of(flags.oracles))
    chosen = [ORACLES.get(name) for name in asked] if asked else list(ORACLES)
    lines: list[Text | str]
    if asked:
        lines = [line for oracle in chosen for line in declaration(_fields(oracle))]
    else:
        lines = [line for oracle in chosen for line in _short(oracle)]
        lines += ["", f"{len(chosen)} oracles; `specfuzz oracles NAME` declares one in full"]
    objects = [_fields(oracle) for oracle in chosen]
    return Outcome(verdict="holds", status=FINE, seed=flags.seed, more={"oracles": objects}, lines=lines)


def _short(oracle: Oracle) -> list[Text]:
    title = Text.assemble((oracle.name, "bold"), f" [{oracle.clock}, {oracle.owner}, {oracle.scope}]")
    return [title, *(Text("  " + line.plain) for line in paragraph(oracle.formula, report_width() - 2))]


def _fields(oracle: Oracle) -> dict[str, object]:
    needs = [flag.name for flag in Capability if flag in oracle.needs and flag.name]
    return {
        "name": oracle.name, "doc": oracle.doc, "formula": oracle.formula, "clock": str(oracle.clock),
        "owner": str(oracle.owner), "point": str(oracle.point), "scope": str(oracle.scope), "needs": needs,
        "on": None if oracle.on is None else [VERBS[event_type] for event_type in oracle.on], "twin": oracle.twin,
        "protocol": oracle.protocol, "source": oracle.source,
    }  # fmt: skip
