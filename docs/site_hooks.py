"""Pages of the documentation's site that are made when it is built: ``mkdocs.yml`` names this file.

One page a package shows the docstrings of its public modules. Which modules there are is read from
the folders. CONTRIBUTING.md and CHANGELOG.md become pages too.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files, InclusionLevel

ROOT = Path(__file__).parents[1]
ROOMS = ("campaign", "dvfs", "kernels", "sites", "analysis")
COPIED = {"contributing.md": "CONTRIBUTING.md", "changes.md": "CHANGELOG.md"}
ROLE = re.compile(r":(?:mod|class|func|data|meth|attr|exc):<code>~?([\w.]+)(?:\(\))?</code>")


def packages() -> dict[str, list[str]]:
    """Package -> the package itself and its public modules, in order of their names."""
    modules: dict[str, list[str]] = {}
    for room in ROOMS:
        for init in sorted((ROOT / room).rglob("__init__.py")):
            package = ".".join(init.parent.relative_to(ROOT).parts)
            names = sorted(path.stem for path in init.parent.glob("*.py"))
            public = [name for name in names if not name.startswith("_")]
            modules[package] = [package, *(f"{package}.{name}" for name in public)]
    return modules


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add ``api/PACKAGE.md`` for each package, their list, and the pages from the root folder."""
    index = ["# Python reference", "", "Made from the docstrings, one page for each package.", ""]
    for package, modules in packages().items():
        page = [f"# {package}", "", *(f"::: {module}\n" for module in modules)]
        files.append(
            File.generated(
                config,
                f"api/{package}.md",
                content="\n".join(page),
                inclusion=InclusionLevel.NOT_IN_NAV,
            )
        )
        index.append(f"- [`{package}`]({package}.md)")
    files.append(File.generated(config, "api/index.md", content="\n".join(index)))
    for page_name, source in COPIED.items():
        text = (ROOT / source).read_text(encoding="utf-8").replace("](docs/", "](")
        files.append(File.generated(config, page_name, content=text))
    return files


def on_page_content(html: str, **_: Any) -> str:
    """A docstring's :class:`NAME` becomes a link to NAME where there is such a page."""
    return ROLE.sub(r'<autoref identifier="\1" optional><code>\1</code></autoref>', html)
