#!/usr/bin/env bash
# FINDING: pbsparse 0.2.6 gives the records of all jobs whose number begins with the digits of the one that is asked
# for. get_pbs_records takes id_filter=["102"] for 102, 1020, 1023 and 10244 alike. One would think that a filter for
# an id compares it whole, as a filter for a node does here. Core hours of a job that are added up from its records
# then have those of others in them, and of ten times as many the longer the accounting goes on; a job that left no
# record of its end is found nonetheless, by another's.
#
# Seen with pbsparse 0.2.6, three jobs that have ended, of one hour on 4, 64 and 128 cores:
#   id_filter=["102"]: jobs 102, 1020, 1023; 196 core hours, where job 102 has 4
#   host_filter=["node1"]: jobs 102; 4 core hours, without that on node10
#
# Exit 0: it is still so. Exit 1: it has changed.
set -euo pipefail
sed -n '/^# FINDING/,/^#$/s/^# //p' "$0"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet pbsparse==0.2.6

cat > "$folder/program.py" <<'PYTHON'
import sys
from pathlib import Path

from pbsparse import get_pbs_records

JOBS = {"102": (4, "node1"), "1020": (64, "node10"), "1023": (128, "node2")}


def main(file: Path) -> int:
    for number, (cores, node) in JOBS.items():
        fields = f"user=ann queue=main ctime=1793520000 qtime=1793520000 start=1793520000 end=1793523600"
        fields += f" exec_vnode=({node}:ncpus={cores}) Resource_List.ncpus={cores}"
        fields += f" resources_used.ncpus={cores} resources_used.walltime=01:00:00"
        with file.open("a") as log:
            log.write(f"11/01/2026 01:00:00;E;{number}.server;{fields}\n")
    found = []
    for option in ({"id_filter": ["102"]}, {"host_filter": ["node1"]}):
        records = list(get_pbs_records(str(file), process=True, type_filter="E", time_divisor=3600, **option))
        hours = sum(one.resources_used["ncpus"] * one.resources_used["walltime"] for one in records)
        numbers = [one.short_id for one in records]
        print(f"{option}: jobs {', '.join(numbers)}; {hours:g} core hours")
        found.append((numbers, hours))
    return 0 if found == [(list(JOBS), 196), (["102"], 4)] else 1


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
PYTHON
"$folder/venv/bin/python" "$folder/program.py" "$folder/20261101"
