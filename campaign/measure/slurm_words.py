"""What became of a job step that left no result, by the words of srun and slurmstepd.

srun ends with status 0 after a node failure, and after a step daemon that was killed, so that its
exit status alone would blame the kernel. The words: recorded from Slurm 22.05, and the strings of
its srun and slurmstepd.
"""

from __future__ import annotations

import re
from enum import Enum, auto


class StepEnd(Enum):
    """Why a step left no result."""

    NO_ANSWER = auto()
    """Slurm did not answer; the step can be started again, in the same allocation."""
    GONE = auto()
    """The worker's job has ended: no step can start in it."""
    LOST = auto()
    """Slurm lost or ended the step; another attempt may not be."""
    OUT_OF_MEMORY = auto()
    """Its memory limit was reached; another attempt would reach it too."""
    REFUSED = auto()
    """Slurm cannot start such a step in the allocation, now or later."""
    KERNEL = auto()
    """None of these: the program ended by itself."""


NO_ANSWER = (
    r"srun: error: .*(Unable to contact slurm controller|Socket timed out|Zero Bytes were"
    r" transmitted|temporarily unavailable|Connection refused)"
)
GONE = (
    r"srun: error: (.* has expired|.* already completing or completed|Unable to confirm allocation"
    r"|.*[Ee]xpired or invalid job|.*Invalid job id)"
)
OUT_OF_MEMORY = (
    r"(srun|slurmstepd\S*): error: .*(oom.kill event|Out Of Memory|OOM Killed|out-of-memory)"
)
LOST = (
    r"(srun|slurmstepd\S*): error: .*(Node failure|NODE_FAIL|DUE TO (NODE FAILURE|PREEMPTION"
    r"|JOB REQUEUE|TIME LIMIT)|STEPD TERMINATED|Timed out waiting for job step"
    r"|credential|Communication connection failure|aborted before step completely launched"
    r"|mpi/pmi2: )"
)
REFUSED = (
    r"srun: error: (.*Requested node configuration is not available|Only allocated \d+ nodes"
    r"|Unable to create step)"
)
ENDS = (
    (NO_ANSWER, StepEnd.NO_ANSWER),
    (GONE, StepEnd.GONE),
    (OUT_OF_MEMORY, StepEnd.OUT_OF_MEMORY),
    (LOST, StepEnd.LOST),
    (REFUSED, StepEnd.REFUSED),
)
"""In this order: the first whose words begin a line. After a node failure the job may be gone."""


def step_end(output: str) -> StepEnd:
    """Why a step left no result, by the last lines that it printed."""
    for words, end in ENDS:
        if re.search(f"^{words}", output, re.MULTILINE):
            return end
    return StepEnd.KERNEL
