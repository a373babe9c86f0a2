#!/usr/bin/env bash
# FINDING: a TB/s of kerncraft 0.8.18 is 10 TB/s, and 10 Tflop/s are printed as one. Its prefixes go from 1e9 (G) to
# 1e13 (T) and 1e16 (P). Numbers below 9e12 are printed with G, and are right; what a machine file states in TB/s, as
# the bandwidth of a cache over all cores or of HBM, is taken for ten times as much, and a roof or a performance of 9e12
# and more is printed as a tenth. One would think that 1.5 TB/s and 1500 GB/s in a machine file are the same, and that
# 20 "TFLOP/s" are 20e12. With the bandwidth in TB/s a kernel that is bound by memory is predicted to run at the
# processor's peak; a node of 40 Tflop/s seems to have 4.
#
# Seen with kerncraft 0.8.18, a machine file with the same bandwidth in two spellings, and a clock of 2.5 GHz:
#   MEM 1500 GB/s: 1.5e+12 byte/s; MEM 1.5 TB/s: 1.5e+13 byte/s
#   2.5 GHz, 128 cores, 16 flop a cycle: 5.12e+12, printed 5120.00 GFLOP/s
#   2.5 GHz, 128 cores, 64 flop a cycle: 2.048e+13, printed 2.05 TFLOP/s
#
# Exit 0: it is still so. Exit 1: it has changed.
set -euo pipefail
sed -n '/^# FINDING/,/^#$/s/^# //p' "$0"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet kerncraft==0.8.18 osaca==0.7.1 ruamel.yaml==0.19.1 numpy==2.4.6

for bandwidth in "1500 GB/s" "1.5 TB/s"; do
    cat > "$folder/${bandwidth%%/*}.yml" <<YAML
kerncraft version: 0.8.18
clock: 2.5 GHz
cores per NUMA domain: 1
memory hierarchy:
  - {level: L1, cores per group: 1}
  - {level: MEM, cores per group: 1}
benchmarks:
  kernels:
    load:
      read streams: {bytes: 8.00 B, streams: 1}
      read+write streams: {bytes: 0.00 B, streams: 0}
      write streams: {bytes: 0.00 B, streams: 0}
  measurements:
    MEM:
      1:
        threads per core: 1
        cores: [1]
        results:
          load: [$bandwidth]
YAML
done

cat > "$folder/program.py" <<'PYTHON'
import sys
from pathlib import Path

from kerncraft.machinemodel import MachineModel
from kerncraft.prefixedunit import PrefixedUnit

CORES = 128


def main(folder: Path) -> int:
    found = []
    for text in ("1500 GB", "1.5 TB"):
        machine = MachineModel(path_to_yaml=str(folder / f"{text}.yml"))
        bandwidth, _ = machine.get_bandwidth(1, 1, 0, threads_per_core=1, cores=1)
        found.append(float(bandwidth))
    print(f"MEM 1500 GB/s: {found[0]:.3g} byte/s; MEM 1.5 TB/s: {found[1]:.3g} byte/s")
    printed = []
    for flops in (16, 64):
        peak = float(machine["clock"]) * CORES * flops
        printed.append(str(PrefixedUnit(peak, "FLOP/s")))
        print(f"2.5 GHz, {CORES} cores, {flops} flop a cycle: {peak:.4g}, printed {printed[-1]}")
    right = found == [1.5e12, 1.5e13]
    return 0 if right and printed == ["5120.00 GFLOP/s", "2.05 TFLOP/s"] else 1


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
PYTHON
"$folder/venv/bin/python" -W ignore "$folder/program.py" "$folder"
