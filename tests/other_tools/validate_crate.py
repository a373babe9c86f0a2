"""A crate that export wrote, by the public validator, without the network.

    python validate_crate.py CRATE CONTEXT.jsonld

In an environment with roc-validator 0.13.0. CONTEXT.jsonld is the context of RO-Crate 1.2, from the
specification's repository (docs/_specification/1.2/context.jsonld), in place of the one that the
validator would fetch. Prints what is wrong by severity; exits 1 where something required is.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

from rocrate_validator import services
from rocrate_validator.models import Severity, ValidationSettings
from rocrate_validator.utils import document_loader, http


def main() -> int:
    """Validate."""
    crate, context = sys.argv[1], json.loads(Path(sys.argv[2]).read_text(encoding="utf-8"))
    answer = SimpleNamespace(
        status_code=200, headers={"Content-Type": "application/ld+json"}, json=lambda: context
    )
    http.HttpRequester.get = lambda self, url, **options: answer
    document_loader._fetch_json_ld = lambda source: context
    settings = ValidationSettings(
        rocrate_uri=crate,
        profile_identifier="ro-crate-1.2",
        requirement_severity=Severity.RECOMMENDED,
    )
    result = services.validate(settings)
    found: Counter[tuple[str, str]] = Counter()
    for issue in result.get_issues():
        found[issue.severity.name, issue.message or ""] += 1
    for (severity, message), count in sorted(found.items()):
        print(f"{severity} x {count}: {message}")
    n_required = sum(n for (severity, _), n in found.items() if severity == "REQUIRED")
    print(f"required: {n_required} wrong; recommended: {sum(found.values()) - n_required}")
    return 1 if n_required else 0


if __name__ == "__main__":
    sys.exit(main())
