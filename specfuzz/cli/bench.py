"""`specfuzz bench`: checked events per second against a bare machine, and where the time goes."""

from __future__ import annotations

from typing import Any

import click
from rich.text import Text

from specfuzz.cli.engines import config_of, goals, opened, options_of, oracles_of
from specfuzz.cli.flags import ENGINE, OPENING, Flags, with_flags
from specfuzz.cli.outcome import FINE, Outcome
from specfuzz.cli.tables import columns
from specfuzz.core.port import SYSTEMS

#: Fixed, so that two machines measure the same events.
SEED = 1


@click.command("bench")
@click.option(
    "--slices", type=click.IntRange(1, 1000), default=5, show_default=True, help="Per machine; medians are shown."
)
@with_flags("json", "seed", "max_examples", *OPENING, *ENGINE, "oracles")
def command(flags: Flags, slices: int) -> Outcome:
    """Measure the reference (or --system) through the machine, and the real SGLang beside it where it is installed.

    --max-examples is per slice. Exit status 0: it measured; the figures are judged by whoever reads them.
    """
    from specfuzz.campaign.bench import BENCH_CONFIG, TREE_CONFIG, BenchPlan, bench_rows_of, run_bench

    options, oracles, seed = options_of(flags), oracles_of(flags), SEED if flags.seed is None else flags.seed
    config = config_of(flags, BENCH_CONFIG)
    shape: dict[str, Any] = {"oracles": oracles, "goals": goals(), "config": config, "seed": seed, "slices": slices}
    if flags.max_examples is not None:
        shape["slice_examples"] = flags.max_examples
    name = flags.system or "reference"
    with opened(name, options) as system:
        trees = TREE_CONFIG if config == BENCH_CONFIG and name == "reference" else None
        report = run_bench(BenchPlan(system=system, tree_config=trees, **shape))
    rows = list(report.rows)
    missing = ""
    if flags.system is None:
        available, _version, why_not, install = SYSTEMS.get("sglang").availability()
        if available:
            with opened("sglang", options) as engine:
                rows += bench_rows_of(BenchPlan(system=engine, **shape))
        else:
            missing = f"the real SGLang is not measured: {why_not} ({install})"
    table = [(r.name, _short(r.value), r.unit, _short(r.baseline), _short(r.ratio)) for r in rows]
    headers = ("figure", "value", "unit", "baseline", "ratio")
    lines: list[Text | str] = [*columns(headers, table), "", f"{name}, {config.label()}, seed {seed}; {report.machine}"]
    objects = [
        {"name": r.name, "value": r.value, "unit": r.unit, "baseline": r.baseline, "ratio": r.ratio} for r in rows
    ]
    return Outcome(
        verdict="holds", status=FINE, seed=seed, lines=[*lines, *([missing] if missing else [])],
        more={"rows": objects, "machine": report.machine, "system": name, "config": config.as_dict()},
    )  # fmt: skip


def _short(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"
