"""Whether the top-level packages that Python finds are this project's.

Another distribution that installs a package ``dvfs``, ``kernels``, ``sites`` or ``analysis`` into
the same environment hides ours or overwrites files of it. Nothing foreign is imported to see that:
it could fail, or take seconds.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

PACKAGES = ("dvfs", "kernels", "sites", "analysis")
MARK = 'OWNER = "dvfs-campaign"'
"""What a line of each of these packages' ``__init__.py`` begins with."""


def foreign_package() -> str | None:
    """What is wrong, and what to do, where a package is missing or another project's; else None."""
    ours = Path(__file__).parents[2]
    for name in PACKAGES:
        spec = find_spec(name)
        if spec is None:
            return (
                f"the package {name!r} is missing beside {ours / 'campaign'}; install "
                f"dvfs-campaign again"
            )
        folder = Path(next(iter(spec.submodule_search_locations or [spec.origin or "?"])))
        lines = _text(folder / "__init__.py").splitlines()
        if folder.parent.samefile(ours) and any(line.startswith(MARK) for line in lines):
            continue
        return (
            f"the package {name!r} in {folder} belongs to another project, and hides or overwrites "
            f"the one of dvfs-campaign; install dvfs-campaign in an environment of its own: "
            f"python -m venv ENV && ENV/bin/pip install dvfs-campaign"
        )
    return None


def _text(path: Path) -> str:
    try:
        return path.read_text("utf-8", "replace")
    except OSError:
        return ""
