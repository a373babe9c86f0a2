#!/usr/bin/env bash
# FINDING: roofline-plotter 0.1.1.post0 draws another roof than that of the machine. It computes the roof at 100
# arithmetic intensities that are spaced evenly from 0 to the largest intensity measured, and joins them on
# logarithmic axes. With a kernel of 1000 flop/byte among them the second of these is 10.1 flop/byte: the ridge is
# drawn there, and all that lies left of it is a line of the wrong bandwidth. One would think that the roof depends
# on the two ceilings alone. A kernel that reaches 80 % of the bandwidth lies four times above the roof; without the
# kernel of 1000 flop/byte it lies below. The roof also ends at the largest intensity measured: where all kernels
# are bound by memory, the other ceiling is not in the picture.
#
# Seen with roofline-plotter 0.1.1.post0, 1000 Gflop/s and 500 GB/s, a kernel of 200 Gflop/s at 0.5 flop/byte:
#   with one of 4 flop/byte: drawn roof over it 250 Gflop/s; with one of 1000 flop/byte: 49 Gflop/s;
#   with one of 1 flop/byte, left of the ridge at 2: the roof ends at 1 flop/byte, at half of the peak
#
# Exit 0: it is still so. Exit 1: it has changed.
set -euo pipefail
sed -n '/^# FINDING/,/^#$/s/^# //p' "$0"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet roofline-plotter==0.1.1.post0 matplotlib==3.10.3 numpy==2.3.1

cat > "$folder/program.py" <<'PYTHON'
import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from roofline import Roofline

KERNEL = (200, 0.5)


def drawn_roof(folder: Path, other_intensity: float) -> tuple[int, float]:
    """The roof over the kernel as it is on the paper, and where it ends."""
    plot = Roofline()
    plot.set_ideal(max_arith=1000, max_bandwidth=500)
    plot.set_palette({"kernels": "black"})
    plot.add_point(*KERNEL, category="kernels")
    plot.add_point(400, other_intensity, category="kernels")
    close, figures = plt.close, []
    plt.close = lambda: figures.append(plt.gcf())
    plot.plot(folder / "roofline.pdf")
    plt.close = close
    axes = figures[0].axes[0]
    roof = next(line for line in axes.lines if line.get_label() == "Roofline")
    x, y = axes.transData.transform(roof.get_xydata()).T
    at = axes.transData.transform((KERNEL[1], 1))[0]
    height = np.interp(at, x, y)
    plt.close("all")
    drawn = axes.transData.inverted().transform((at, height))[1]
    return round(drawn), float(roof.get_xdata()[-1])


def main(folder: Path) -> int:
    found = {other: drawn_roof(folder, other) for other in (1, 4, 1000)}
    for other, (roof, end) in found.items():
        print(f"with a kernel of {other} flop/byte: roof over 0.5 flop/byte {roof} Gflop/s, up to {end:g}")
    return 0 if found == {1: (250, 1), 4: (250, 4), 1000: (49, 1000)} else 1


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
PYTHON
"$folder/venv/bin/python" "$folder/program.py" "$folder"
