#!/usr/bin/env bash
# FINDING: HolisticTraceAnalysis 0.5.0 takes about 1 us off each event of a trace whose times are finer than a
# microsecond. It rounds the begin up and the end down, so the loss is in one direction and does not cancel over
# many kernels: kernels of 2.5 us lose 40 % of their time, and the time is counted as idle. Of a kernel that
# takes twice as long at half the clock it makes one that takes 2.7 times as long. One would think that
# rounding to microseconds leaves the sum of a thousand kernels as it was. HTA_DISABLE_NS_ROUNDING=1 does.
#
# Seen with HolisticTraceAnalysis 0.5.0, 1000 kernels, one each 30.013 us:
#   2.5 us each: 1501 us of 2500 us, busy 5.0 %
#   5.0 us each: 4001 us of 5000 us, busy 13.3 %
#   HTA_DISABLE_NS_ROUNDING=1: 2500 us and 5000 us
#   slowdown from the first to the second: 2.67; true 2.00
#
# Exit 0: it is still so. Exit 1: it has changed.
set -euo pipefail
sed -n '/^# FINDING/,/^#$/s/^# //p' "$0"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet HolisticTraceAnalysis==0.5.0 pandas==2.3.3

cat > "$folder/program.py" <<'PYTHON'
import json
import logging
import os
import sys
from pathlib import Path

from hta.trace_analysis import TraceAnalysis

KERNELS, PERIOD_US = 1000, 30.013


def trace(kernel_us: float) -> dict:
    events = []
    for number in range(KERNELS):
        begin = round(100 + number * PERIOD_US, 3)
        launch = {"name": "cudaLaunchKernel", "cat": "cuda_runtime", "pid": 1, "tid": 1, "dur": 1.5}
        kernel = {"name": "solve", "cat": "kernel", "pid": 0, "tid": 7, "dur": kernel_us}
        correlation = {"correlation": number + 1}
        events.append(launch | {"ph": "X", "ts": round(begin - 5, 3), "args": correlation})
        on_gpu = correlation | {"stream": 7, "device": 0}
        events.append(kernel | {"ph": "X", "ts": begin, "args": on_gpu})
    return {"schemaVersion": 1, "distributedInfo": {"rank": 0}, "traceEvents": events}


def analysed(file: Path) -> tuple[int, float]:
    analysis = TraceAnalysis(trace_files={0: str(file)}, trace_dir=str(file.parent))
    _, kernels = analysis.get_gpu_kernel_breakdown(visualize=False)
    (busy,) = analysis.get_temporal_breakdown(visualize=False)["compute_time_pctg"]
    return round(kernels["sum (us)"].sum()), busy


def main(folder: Path) -> int:
    logging.disable(logging.CRITICAL)
    rounded, exact = {}, {}
    for kernel_us in (2.5, 5.0):
        file = folder / f"{kernel_us}.json"
        file.write_text(json.dumps(trace(kernel_us)))
        os.environ["HTA_DISABLE_NS_ROUNDING"] = "1"
        exact[kernel_us], _ = analysed(file)
        del os.environ["HTA_DISABLE_NS_ROUNDING"]
        rounded[kernel_us], busy = analysed(file)
        true_us = KERNELS * kernel_us
        print(f"{kernel_us} us each: {rounded[kernel_us]} us of {true_us:.0f} us, busy {busy:.1f} %")
    print(f"HTA_DISABLE_NS_ROUNDING=1: {exact[2.5]} us and {exact[5.0]} us")
    slowdown = rounded[5.0] / rounded[2.5]
    print(f"slowdown from the first to the second: {slowdown:.2f}; true {exact[5.0] / exact[2.5]:.2f}")
    return 0 if exact == {2.5: 2500, 5.0: 5000} and rounded[2.5] < 1600 and slowdown > 2.5 else 1


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
PYTHON
"$folder/venv/bin/python" -W ignore "$folder/program.py" "$folder"
