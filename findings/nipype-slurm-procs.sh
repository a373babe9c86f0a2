#!/usr/bin/env bash
# FINDING: nipype 1.11.0's SLURM plugin submits a node without its n_procs and mem_gb. Both are stated on the
# node of the workflow, and the MultiProc plugin knows them: with raise_insufficient it refuses a node of 8
# processes on a machine of 4. With SLURM the same node is a job of the size that the partition gives
# without a request, and its solver with 8 threads is measured on those cores. Only plugin_args reach sbatch.
#
# Seen with nipype 1.11.0, a node with n_procs=8 and mem_gb=32, a stand-in for sbatch that runs the script:
#   sbatch was called with: -p -o -e -J
#   #SBATCH lines in the script: 0
#   MultiProc with 4 processes: RuntimeError
#
# Exit 0: it is still so. Exit 1: it has changed.
set -euo pipefail
sed -n '/^# FINDING/,/^#$/s/^# //p' "$0"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet nipype==1.11.0

mkdir "$folder/bin"
cat > "$folder/bin/sbatch" <<'BASH'
#!/usr/bin/env bash
echo "$@" >> "$CALLS"
bash "${@: -1}" > /dev/null 2>&1
echo "Submitted batch job 1"
BASH
printf '#!/usr/bin/env bash\n' > "$folder/bin/squeue"
chmod +x "$folder/bin/sbatch" "$folder/bin/squeue"

cat > "$folder/program.py" <<'PYTHON'
import os
import re
import sys
from pathlib import Path

from nipype import Function, Node, Workflow, logging


def solve(size):
    return size


def run(folder: Path, plugin: str, **options: str | int | bool) -> None:
    function = Function(input_names=["size"], output_names=["size"], function=solve)
    node = Node(function, name="solve", n_procs=8, mem_gb=32)
    node.inputs.size = 1
    workflow = Workflow(plugin.lower(), base_dir=str(folder))
    workflow.add_nodes([node])
    workflow.run(plugin=plugin, plugin_args=options)


def main(folder: Path) -> int:
    logging.getLogger("nipype.workflow").setLevel("CRITICAL")
    run(folder, "SLURM", sbatch_args="-p partition")
    (call,) = Path(os.environ["CALLS"]).read_text().splitlines()
    (script,) = (folder / "slurm" / "batch").glob("*.sh")
    options = re.findall(r"(?:^| )(-{1,2}[a-zA-Z][a-z-]*)", call)
    directives = script.read_text().count("#SBATCH")
    try:
        run(folder, "MultiProc", n_procs=4, memory_gb=64, raise_insufficient=True)
        local = "it runs"
    except RuntimeError as error:
        local = type(error).__name__
    print(f"sbatch was called with: {' '.join(options)}")
    print(f"#SBATCH lines in the script: {directives}")
    print(f"MultiProc with 4 processes: {local}")
    unsaid = options == ["-p", "-o", "-e", "-J"] and directives == 0
    return 0 if unsaid and local == "RuntimeError" else 1


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
PYTHON
export CALLS="$folder/calls" LOGNAME=user PATH="$folder/bin:$PATH"
cd "$folder"
"$folder/venv/bin/python" "$folder/program.py" "$folder"
