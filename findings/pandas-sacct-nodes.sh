#!/usr/bin/env bash
# FINDING: pandas-sacct 1.2.0 renames the last node of some jobs. Sacct.execute gives sacct's rows as a DataFrame. As
# lists of nodes were once cut off by sacct, a list that has a [ and does not end in ] gets a ] at its end. One would
# think that a list is as Slurm wrote it: where the nodes of a job have two prefixes and the last is one node, as in
# cn[1-2],gpu7, it is whole. It becomes cn[1-2],gpu7]; Slurm's hostlist parsers reject it or name a node gpu7], which no
# table of nodes has. A join with the power of the nodes loses that node, in mixed jobs only.
#
# Seen with pandas-sacct 1.2.0 and pandas 3.1.1:
#   cn[1-2],gpu7: cn[1-2],gpu7]
#   gpu7,cn[1-2]: gpu7,cn[1-2]
#   r[1-2]n1: r[1-2]n1]
#
# Exit 0: it is still so. Exit 1: it has changed.
set -euo pipefail
sed -n '/^# FINDING/,/^#$/s/^# //p' "$0"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet pandas-sacct==1.2.0 pandas==3.1.1 python-hostlist==2.3.0

cat > "$folder/sacct" <<'SACCT'
#!/usr/bin/env bash
cat <<'ROWS'
101.batch|2026-01-01T00:00:00|2026-01-01T00:10:00|cn[1-2],gpu7
102.batch|2026-01-01T00:00:00|2026-01-01T00:10:00|gpu7,cn[1-2]
103.batch|2026-01-01T00:00:00|2026-01-01T00:10:00|r[1-2]n1
ROWS
SACCT
chmod +x "$folder/sacct"

cat > "$folder/program.py" <<'PYTHON'
import sys

from hostlist import BadHostlist, expand_hostlist
from sacct import Sacct

WRITTEN = ["cn[1-2],gpu7", "gpu7,cn[1-2]", "r[1-2]n1"]


def main() -> int:
    read = Sacct(sacct_cmd=sys.argv[1]).execute()["nodelist"].tolist()
    for written, found in zip(WRITTEN, read, strict=True):
        print(f"{written}: {found}")
    whole = expand_hostlist(WRITTEN[0]) == ["cn1", "cn2", "gpu7"]
    try:
        expand_hostlist(read[0])
        rejected = False
    except BadHostlist:
        rejected = True
    still = read == ["cn[1-2],gpu7]", "gpu7,cn[1-2]", "r[1-2]n1]"]
    return 0 if whole and rejected and still else 1


if __name__ == "__main__":
    sys.exit(main())
PYTHON
"$folder/venv/bin/python" "$folder/program.py" "$folder/sacct"
