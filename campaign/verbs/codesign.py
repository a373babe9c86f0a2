"""codesign: the chip that would run a workload of stencils best."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from campaign.verbs import options
from campaign.verbs.printing import answer, explain, print_fields, print_table, say

if TYPE_CHECKING:
    from campaign.codesign.designs import BestDesign, Codesign

SUMMARY = "find the chip that would run a workload of stencils best within an area"
EXAMPLE = "campaign codesign examples/codesign-maxwell.toml"
MORE = (
    "A study file declares the space of chips, the space of tiles and the workload. Every chip is "
    "tried with every tile, by the equations of Prajapati 2019, appendices A and C. Nothing is "
    "measured."
)


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("study", metavar="STUDY.toml", help="the study file")
    parser.add_argument(
        "-o", "--output", metavar="DIR", help="also write the figures to this folder, as SVG"
    )
    options.add_all(parser)
    options.add_json(parser)


def run(arguments: Namespace) -> int:
    """Print the study, and write the figures with ``--output``."""
    from campaign.codesign.designs import run_study, write_study_figures  # noqa: PLC0415

    result = run_study(Path(arguments.study))
    written = write_study_figures(result, Path(arguments.output)) if arguments.output else []
    return answer(arguments.json, result.as_dict, lambda: _print(result, written, arguments.all))


def _print(result: Codesign, figures: list[Path], every_row: bool) -> None:
    study, area = result.study, result.study.area
    caches = "with" if area.caches else "without"
    explain(
        f"{study.name}: {len(result.designs)} designs of {area.range_mm2[0]:g} to "
        f"{area.range_mm2[1]:g} mm2 {caches} caches; objective {study.objective}; equations of "
        f"Prajapati 2019, {study.form} form; nothing was measured"
    )
    say()
    energies = study.energy is not None
    header = ["best for", "processors", "lanes", "kB", "mm2", "s", *["J"] * energies, "GFLOP/s"]
    print_table(header, [_best_row(name, design, energies) for name, design in result.best.items()])
    say()
    explain("share of the area, %")
    names = list(next(iter(result.best.values())).parts_mm2)
    rows = []
    for name, design in result.best.items():
        whole = sum(design.parts_mm2.values())
        rows.append([name, *(round(100 * design.parts_mm2[part] / whole, 1) for part in names)])
    print_table(["best for", *names], rows)
    say()
    explain("tiles of the best design for each stencil; k: tiles at a time on a processor")
    tiles = [tile for name in result.stencils for tile in result.best[name].tiles]
    columns = list(dict.fromkeys(name for tile in tiles for name in tile))
    print_table(columns, [[tile.get(name) for name in columns] for tile in tiles], every_row)
    say()
    explain(f"designs that no other beats in area and {study.objective}: {len(result.front)}")
    front = [result.row(place) for place in result.front.tolist()]
    print_table(list(front[0]), [list(row.values()) for row in front], every_row)
    if result.existing:
        say()
        explain("existing chips on the same workload")
        print_fields(result.existing, {n: n for n in result.existing[0] if n != "times_s"})
    if len(result.stencils) > 1:
        say()
        explain(
            "what other weights would choose: the best design while a stencil has this share of "
            "all weights, and the others keep their proportions"
        )
        header = ["stencil", "low", "high", "processors", "lanes", "on_chip_kb"]
        shares = [[row[name] for name in header] for row in result.shares()]
        print_table(["stencil", "from", "to", *header[3:]], shares, every_row)
    for path in figures:
        say(f"figure: {path}")


def _best_row(name: str, design: BestDesign, energies: bool) -> list[Any]:
    row = [
        name,
        design.processors,
        design.lanes,
        design.on_chip_kb,
        round(design.area_mm2, 1),
        design.time_s,
    ]
    return [*row, *[design.energy_j] * energies, round(design.gflop_per_s)]
