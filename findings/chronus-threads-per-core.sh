#!/usr/bin/env bash
# FINDING: chronus 0.3.13 runs each of its benchmarks with one thread per core, whatever its table says. The table
# of its BenchmarkService has all numbers of threads per core that the processor allows, and each run is kept under
# its own; the runner is called with the cores and the clock alone, and its default of 1 is in the script of every
# job. One would think that a setting that is listed, logged and stored has been measured, and that a difference
# between 1 and 2 threads is theirs. It is that of two repeats, and the one that chance favours is recommended.
#
# Seen with chronus 0.3.13, 2 cores with up to 2 threads, one clock; sbatch and scontrol are simulated:
#   kept: 1 core 1 thread, 1 core 2 threads, 2 cores 1 thread, 2 cores 2 threads
#   srun of the four jobs: --ntasks-per-core=1, --ntasks-per-core=1, --ntasks-per-core=1, --ntasks-per-core=1
#
# Exit 0: it is still so. Exit 1: it has changed.
set -euo pipefail
sed -n '/^# FINDING/,/^#$/s/^# //p' "$0"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --no-deps chronus==0.3.13 dataclasses-json==0.5.14 \
    marshmallow==3.26.1 packaging==25.0 typing-inspect==0.9.0 mypy-extensions==1.1.0 typing-extensions==4.15.0

mkdir "$folder/bin"
cat > "$folder/bin/sbatch" <<'BASH'
#!/usr/bin/env bash
grep srun "$1" >> "$SCRIPTS"
printf '%s\n' 'GFLOP/s rating of=1.5' 'Floating Point Operations Summary::Total=1.5e+09' > HPCG-Benchmark_1.txt
echo "Submitted batch job 1"
BASH
printf '%s\n' '#!/usr/bin/env bash' 'echo JobState=COMPLETED' > "$folder/bin/scontrol"
chmod +x "$folder/bin/sbatch" "$folder/bin/scontrol"

cat > "$folder/program.py" <<'PYTHON'
import datetime
import os
import re
import sys
from pathlib import Path

from chronus.application.benchmark_service import BenchmarkService
from chronus.domain.cpu_info import SystemInfo
from chronus.domain.system_sample import SystemSample
from chronus.SystemIntegration.application_runners.hpcg import HpcgService


class Processor:
    def get_cpu_info(self) -> SystemInfo:
        return SystemInfo("a processor", cores=2, threads_per_core=2, frequencies=[2_500_000])


class Meter:
    def sample(self) -> SystemSample:
        return SystemSample(datetime.datetime.now(), 100.0)


class Kept:
    def __init__(self) -> None:
        self.runs = []

    def save_benchmark(self, benchmark) -> int:
        return 1

    def save_run(self, run) -> None:
        self.runs.append((run.cores, run.threads_per_core))


def main(folder: Path) -> int:
    (folder / "output").mkdir()
    kept = Kept()
    runner = HpcgService("./xhpcg", f"{folder}/output/")
    BenchmarkService(Processor(), runner, Meter(), kept).run()
    threads = re.findall(r"--ntasks-per-core=\S+", Path(os.environ["SCRIPTS"]).read_text())
    print("kept: " + ", ".join(f"{cores} cores {number} threads" for cores, number in kept.runs))
    print("srun of the jobs: " + ", ".join(threads))
    expected = [(1, 1), (1, 2), (2, 1), (2, 2)]
    return 0 if kept.runs == expected and threads == ["--ntasks-per-core=1"] * 4 else 1


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
PYTHON
PATH="$folder/bin:$PATH" SCRIPTS="$folder/scripts" "$folder/venv/bin/python" -W ignore "$folder/program.py" "$folder"
