"""The time of a study of chips, and its results compared with the thesis.

    .venv/bin/python -m benchmarks.codesign_speed

The study is examples/codesign-maxwell.toml over 200 to 650 mm2: 3,737 designs, six stencils, all
tiles and k, on one core. It is timed in full and again with other weights. Then the best designs
of both forms over 425 to 450 mm2 are compared with Table C.2 of Prajapati 2019, and the gains with
its section C.4.1: the mean rate of the stencils of two or three dimensions on the best design that
is no larger than a reference chip, over the rate on that chip.

The thesis prints neither flops nor sizes of these studies: no claim is made on its GFLOP/s.

Exits 0 when the study takes at most 3 minutes and other weights at most 1 s, and the printed form
finds Table C.2's design for Laplacian3D; else 1.
"""

from __future__ import annotations

import csv
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from analysis.costs.codesign import weighted
from benchmarks.shared import ROOT, argument_parser
from campaign.codesign.designs import Codesign, run_study

STUDY = ROOT / "examples" / "codesign-maxwell.toml"
DATA = ROOT / "tests" / "data" / "prajapati2019"
CODES = {
    "Jacobi2D": "j2d",
    "Heat2D": "h2d",
    "Gradient2D": "g2d",
    "Laplacian2D": "l2d",
    "Heat3D": "h3d",
    "Laplacian3D": "l3d",
}
FORMS = ("corrected", "printed")


def rows(name: str) -> list[dict[str, str]]:
    """Return the rows of a table of the thesis."""
    with (DATA / f"{name}.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def studied(folder: Path, form: str, low: float, high: float) -> Codesign:
    """Return the study with a form and a range of areas."""
    text = STUDY.read_text(encoding="utf-8")
    text = text.replace('name = "maxwell"', f'name = "maxwell"\nform = "{form}"', 1)
    text = text.replace("range_mm2 = [425, 450]", f"range_mm2 = [{low}, {high}]")
    path = folder / "study.toml"
    path.write_text(text, encoding="utf-8")
    return run_study(path)


def gain_pct(result: Codesign, dimensions: str, chip: str, area_mm2: float) -> float:
    """Return how much faster the best design of at most an area is than an existing chip, in % of
    the total time of the stencils with these dimensions."""
    places = [place for place, name in enumerate(result.stencils) if name.endswith(dimensions)]
    fits = result.designs.area_mm2 <= area_mm2
    least = result.time_s[fits][:, places].sum(axis=1).min()
    (existing,) = (row for row in result.existing if row["name"] == chip)
    return float(100 * (sum(existing["times_s"][result.stencils[p]] for p in places) / least - 1))


def main() -> None:
    """Measure, print, and exit with the verdict."""
    argument_parser(__doc__).parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        studied(folder, "printed", 425, 450)  # compiles
        begin = time.process_time()
        whole = {form: studied(folder, form, 200, 650) for form in FORMS[:1]}
        taken_s = time.process_time() - begin
        begin = time.process_time()
        result = whole["corrected"]
        for shares in np.random.default_rng(0).random((100, len(result.stencils))):
            weighted(result.costs, shares).argmin()
        again_s = (time.process_time() - begin) / 100
        print(
            f"{len(result.designs)} designs: {taken_s:.1f} s of CPU; other weights {again_s:.6f} s"
        )
        whole["printed"] = studied(folder, "printed", 200, 650)
        narrow = {form: studied(folder, form, 425, 450) for form in FORMS}
    print("\nbest designs of 425 to 450 mm2: processors, lanes, kB; GFLOP/s")
    print(f"{'':12} {'thesis, table C.2':>24}  {'corrected':>24}  {'printed':>24}")
    for row in rows("tableC2_workload_sensitivity"):
        designs = [narrow[form].best[CODES[row["code"]]] for form in FORMS]
        texts = [
            f"{b.processors}, {b.lanes}, {b.on_chip_kb:g}; {b.gflop_per_s:.0f}" for b in designs
        ]
        thesis = f"{row['nSM']}, {row['nV']}, {row['MSM_kB']}; {row['GFLOPs_per_s']}"
        print(f"{row['code']:12} {thesis:>24}  {texts[0]:>24}  {texts[1]:>24}")
    print("\ngain over an existing chip, %: designs without caches of at most this area")
    print(f"{'':28} {'mm2':>5}  {'thesis':>7}  {'corrected':>9}  {'printed':>8}")
    for row in rows("appC_improvement_claims"):
        chip = "gtx-980" if row["reference"].startswith("GTX980") else "titan-x"
        area = float(row["area_basis_mm2"].split("(")[-1].rstrip(")"))
        gains = [gain_pct(whole[form], row["stencil_class"].lower(), chip, area) for form in FORMS]
        label = f"{row['stencil_class']} {row['reference']}"
        thesis = float(row["improvement_percent"])
        print(f"{label:28} {area:5.0f}  {thesis:7.2f}  {gains[0]:9.1f}  {gains[1]:8.1f}")
    best = narrow["printed"].best["l3d"]
    right = (best.processors, best.lanes, best.on_chip_kb) == (8, 896, 96)
    sys.exit(0 if right and taken_s <= 180 and again_s <= 1 else 1)


if __name__ == "__main__":
    main()
