"""Disassembled GPU machine code: instructions, loops, and how often each is executed.

Instructions are counted in the machine code (SASS), as ``nvdisasm`` of NVIDIA's CUDA toolkit prints
it. PTX is less exact, because it is compiled once more. A loop is a backward jump with all
instructions from its target to the jump.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from kernels.kernel import KernelError

REMEDY = "pip install nvidia-cuda-nvdisasm"
_FUNCTION = re.compile(r"\.text\.(?P<name>[\w$]+):")
_LABEL = re.compile(r"(?P<name>\.L\w+):")
_INSTRUCTION = re.compile(
    r"/\*(?P<at>[0-9a-f]{4,})\*/\s+(?:@(?P<guard>!?U?P\w+)\s+)?(?P<opcode>[A-Z]\w*)"
    r"(?P<modifiers>(?:\.\w+)*)\s*(?P<operands>[^;]*);"
)
_TARGET = re.compile(r"`\((?P<name>\.L\w+)\)")


@dataclass(frozen=True)
class Instruction:
    """An ``opcode`` with its ``modifiers``: ``LDG`` with ``("E", "128")``. ``target``: the label
    to which a jump goes; empty for other instructions."""

    at: int
    opcode: str
    modifiers: tuple[str, ...]
    operands: str
    guard: str = ""
    target: str = ""

    @property
    def name(self) -> str:
        """The opcode and its modifiers, such as ``LDG.E.128``."""
        return ".".join((self.opcode, *self.modifiers))

    @property
    def moves_constant(self) -> bool:
        """Whether it is a multiply-add of zeros, by which the compiler sets a register."""
        zeros = "RZ, RZ" in self.operands.replace("-", "")
        return zeros and self.opcode in ("HFMA2", "IMAD", "FFMA")

    @property
    def never_runs(self) -> bool:
        """Whether its predicate is never true; the compiler fills waits with such instructions."""
        return self.guard in ("!PT", "!UPT")


@dataclass(frozen=True)
class Loop:
    """The addresses of a loop's first and last instruction."""

    begin: int
    end: int

    def holds(self, at: int) -> bool:
        """Whether an instruction lies in the loop."""
        return self.begin <= at <= self.end


@dataclass(frozen=True)
class Function:
    """The instructions of a function in order, and its loops, the outermost first."""

    name: str
    instructions: tuple[Instruction, ...]
    loops: tuple[Loop, ...]

    def depth(self, instruction: Instruction) -> int:
        """The number of loops that contain an instruction."""
        return sum(loop.holds(instruction.at) for loop in self.loops)

    def executed(self, depth: int, inner: Sequence[int] = ()) -> Counter[str]:
        """Instruction name -> how often one thread executes it in one pass through the loop bodies
        at ``depth``; 1 is the outermost. Instructions that only set a register to a constant, and
        those that never run, are left out.

        ``inner``: how often the loops inside run in each pass, by depth.
        """
        times = [1]
        for count in inner:
            times.append(times[-1] * count)
        counts: Counter[str] = Counter()
        for instruction in self.instructions:
            deeper = self.depth(instruction) - depth
            if deeper >= 0 and not (instruction.moves_constant or instruction.never_runs):
                counts[instruction.name] += times[deeper]
        return counts


def disassemble(cubin: bytes) -> str:
    """The listing of a cubin.

    Raises:
        KernelError: ``nvdisasm`` is missing, or cannot read the code.
    """
    program = _nvdisasm()
    if program is None:
        raise KernelError(f"reading a GPU's machine code needs nvdisasm: {REMEDY}")
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        done = subprocess.run(
            [program, "-c", file.name], capture_output=True, text=True, check=False
        )
    if done.returncode:
        raise KernelError(f"nvdisasm: {(done.stderr or done.stdout).strip()}")
    return done.stdout


def _nvdisasm() -> str | None:
    """The path of ``nvdisasm``: from the installed wheel, else from PATH; None without one."""
    from importlib.util import find_spec  # noqa: PLC0415

    spec = find_spec("nvidia")
    for folder in (spec.submodule_search_locations or []) if spec else []:
        found = sorted(Path(folder).glob("*/bin/nvdisasm"))
        if found:
            return str(found[-1])
    return shutil.which("nvdisasm")


def read_listing(text: str) -> dict[str, Function]:
    """The functions of a listing, by name."""
    functions = {}
    parts = _FUNCTION.split(text)
    for name, body in zip(parts[1::2], parts[2::2], strict=True):
        instructions: list[Instruction] = []
        labels: dict[str, int] = {}
        waiting: list[str] = []
        for line in body.splitlines():
            if label := _LABEL.match(line.strip()):
                waiting.append(label["name"])
            elif found := _INSTRUCTION.search(line):
                at = int(found["at"], 16)
                labels |= dict.fromkeys(waiting, at)
                waiting = []
                target = _TARGET.search(found["operands"])
                instructions.append(
                    Instruction(
                        at=at,
                        opcode=found["opcode"],
                        modifiers=tuple(found["modifiers"].split(".")[1:]),
                        operands=found["operands"].strip(),
                        guard=found["guard"] or "",
                        target=target["name"] if target else "",
                    )
                )
        functions[name] = Function(name, tuple(instructions), _loops(instructions, labels))
    return functions


def _loops(instructions: Sequence[Instruction], labels: dict[str, int]) -> tuple[Loop, ...]:
    """The loops of a function. Backward jumps to the same target are one loop. A jump to itself,
    which ends the code of every function, is not a loop."""
    ends: dict[int, int] = {}
    for instruction in instructions:
        begin = labels.get(instruction.target) if instruction.opcode == "BRA" else None
        if begin is not None and begin < instruction.at:
            ends[begin] = max(ends.get(begin, 0), instruction.at)
    loops = [Loop(begin, end) for begin, end in ends.items()]
    return tuple(sorted(loops, key=lambda loop: (loop.begin, -loop.end)))
