#!/usr/bin/env bash
# FINDING: carm-roofline 1.5.1 counts a region inside another region twice. PAPI's high-level interface writes
# for each region all that happened between its begin and its end, and the id of the region around it; the tool
# reads the id and then adds the flops, the bytes and the time of all regions of a thread. A point of the
# roofline for the whole program has the inner region's work and time double, so its flop/s, its bandwidth and its
# arithmetic intensity move towards the inner region's. Without the inner region the same run is right.
#
# Seen with carm-roofline 1.5.1, a program of 10 s and 100 Gflop, of which solve has 4 s and 90 Gflop:
#   one region: 100 Gflop in 10 s, 10.0 Gflop/s, 0.25 flop/byte
#   with solve inside it: 190 Gflop in 14 s, 13.6 Gflop/s, 0.40 flop/byte
#
# Exit 0: it is still so. Exit 1: it has changed.
set -euo pipefail
sed -n '/^# FINDING/,/^#$/s/^# //p' "$0"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet carm-roofline==1.5.1

cat > "$folder/program.py" <<'PYTHON'
import json
import sys
from pathlib import Path

from carm_roofline.core import DataType
from carm_roofline.profiling.aggregation import AggregatedPoint, aggregate
from carm_roofline.profiling.config import AggregationMode
from carm_roofline.profiling.model import RunMetadata, RunResults
from carm_roofline.profiling.papi_loader import load_all_ranks
from carm_roofline.profiling.papi_metrics import PAPIMetricRegistry
from carm_roofline.profiling.shared import MetricContext, MetricResolutionConfig

EVENTS = ("PAPI_FP_OPS", "PAPI_LST_INS")


def region(name: str, parent: int, time_s: int, gflop: int, gbyte: int) -> dict[str, str]:
    counts = dict(zip(EVENTS, (str(gflop * 10**9), str(gbyte * 10**9 // 8))))
    time = {"cycles": "1", "real_time_nsec": str(time_s * 10**9)}
    return {"name": name, "parent_region_id": str(parent)} | time | counts


def point(name: str, folder: Path, *regions: dict[str, str]) -> AggregatedPoint:
    folder.mkdir()
    threads = {"0": {"regions": {str(number): one for number, one in enumerate(regions)}}}
    (folder / "rank_000000.json").write_text(json.dumps({"threads": threads}))
    config = MetricResolutionConfig(data_type=DataType.f64)
    run = RunResults(RunMetadata(), load_all_ranks(folder))
    metrics = PAPIMetricRegistry(config).resolve(frozenset(EVENTS))
    (found,) = aggregate(run, AggregationMode.GLOBAL, metrics, MetricContext(config))
    print(
        f"{name}: {found.total_flops / 1e9:.0f} Gflop in {found.runtime_s:.0f} s, "
        f"{found.flops_per_second / 1e9:.1f} Gflop/s, {found.arithmetic_intensity:.2f} flop/byte"
    )
    return found


def main(folder: Path) -> int:
    program, solve = region("program", -1, 10, 100, 400), region("solve", 0, 4, 90, 75)
    alone = point("one region", folder / "alone", program)
    nested = point("with solve inside it", folder / "nested", program, solve)
    right = (alone.total_flops, alone.runtime_s) == (100e9, 10)
    return 0 if right and (nested.total_flops, nested.runtime_s) == (190e9, 14) else 1


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
PYTHON
"$folder/venv/bin/python" "$folder/program.py" "$folder"
