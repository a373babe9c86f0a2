"""Write the results that tests keep, as they are computed now.

    python -m tests.kept [SUBJECT ...]

All subjects without one. Names what changed.
"""

from __future__ import annotations

import json
import sys
from importlib import import_module

from tests.kept import KEPT, differences, file_of, plain

MODULES = {
    "findings": "tests.analysis.test_kept_findings",
    "results": "tests.analysis.test_kept_results",
    "reports": "tests.analysis.test_kept_reports",
    "windows": "tests.campaign.test_window_energies",
    "plans": "tests.campaign.test_kept_plans",
}

TIGHT = (",", ":")
"""Without spaces: the files are read by tests, and their differences by people."""


def main(subjects: list[str]) -> None:
    KEPT.mkdir(exist_ok=True)
    for subject in subjects or MODULES:
        results = import_module(MODULES[subject]).RESULTS
        now = {name: plain(compute()) for name, compute in results.items()}
        path = file_of(subject)
        before = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        for name, value in now.items():
            if name not in before or differences(before[name], json.loads(json.dumps(value))):
                print(f"{subject}: {name}")
        lines = ",\n".join(
            f"{json.dumps(name)}: {json.dumps(value, ensure_ascii=False, separators=TIGHT)}"
            for name, value in now.items()
        )
        path.write_text(f"{{\n{lines}\n}}\n", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
