"""What came of one fault: the line of the fault run's report."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """One fault and what came of it.

    ``exit_code`` and ``last_line`` are those of the campaign that was disturbed; a negative code
    is the signal that ended it, None means that it had to be ended from outside. ``verdict`` says
    what the checker found after the undisturbed runs that followed; ``ok`` whether all was well.
    ``what`` says what was done, and when, well enough to do it again with ``seed``.
    """

    kind: str
    seed: int
    what: str
    exit_code: int | None
    last_line: str
    verdict: str
    ok: bool
    seconds: float

    def line(self) -> str:
        """The outcome as one line of text."""
        mark = "ok" if self.ok else "FAILED"
        return (
            f"{mark} {self.kind} seed {self.seed}: {self.what}; exit code {self.exit_code}; "
            f"last line: {self.last_line or 'none'}; {self.verdict}; {self.seconds:.1f} s"
        )
