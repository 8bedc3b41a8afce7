"""`specfuzz systems`: the engines behind the port, and the installer of the real ones."""

from __future__ import annotations

import click
from rich.text import Text

from specfuzz.cli.flags import Flags, with_flags
from specfuzz.cli.outcome import FINE, Outcome
from specfuzz.cli.tables import columns
from specfuzz.core.port import SYSTEMS
from specfuzz.errors import UnknownName

#: Systems that live in an environment of their own, which `install` builds.
INSTALLABLE = ("sglang",)


@click.group("systems", invoke_without_command=True)
@with_flags("json", "seed")
def command(flags: Flags) -> Outcome:
    """List the systems: which are here, in which version, and how to get the others."""
    if click.get_current_context().invoked_subcommand is not None:
        return Outcome(verdict="holds", status=FINE)
    listed = []
    for name in SYSTEMS.names():
        factory = SYSTEMS.get(name)
        available, version, why_not, install = factory.availability()
        listed.append(
            {
                "name": name,
                "summary": factory.summary,
                "available": available,
                "version": version,
                "why_not": why_not,
                "install": install,
            }
        )
    rows = [(s["name"], s["available"], s["version"] or "-", s["summary"]) for s in listed]
    lines: list[Text | str] = [*columns(("system", "here", "version", "what it is"), rows)]
    for system in listed:
        if not system["available"]:
            lines += ["", f"{system['name']} is not here: {system['why_not']}"]
            lines += [f"  install it: {system['install']}"] if system["install"] else []
    return Outcome(verdict="holds", status=FINE, seed=flags.seed, more={"systems": listed}, lines=lines)


@command.command("install")
@click.argument("name", metavar="NAME")
@with_flags("json")
def install(flags: Flags, name: str) -> Outcome:
    """Build the environment of a real engine (sglang), without GPU packages."""
    if name not in INSTALLABLE:
        from specfuzz.cli.main import did_you_mean

        SYSTEMS.get(name)
        raise UnknownName(
            f"`{name}` needs no installation.{did_you_mean(name, INSTALLABLE)} To install: {', '.join(INSTALLABLE)}."
        )
    from importlib import import_module

    made = import_module(f"specfuzz.systems.{name}").install()
    place = "" if made is None else f": {made}"
    return Outcome(
        verdict="holds", status=FINE, more={"system": name, "environment": None if made is None else str(made)},
        lines=[f"{name} is ready{place}"],
    )  # fmt: skip
