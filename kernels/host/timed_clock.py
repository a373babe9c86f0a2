"""The core clock from a timed chain of dependent additions of one cycle each.

A register is repeatedly added to another. Each addition needs the previous result, so that the
chain takes one cycle per addition, whatever else the core can execute in parallel, and a thread on
the same core hardly slows it. The additions are written as instructions, so that no compiler can
combine or omit them. They add a register, not a constant: processors since Golden Cove perform
additions of small constants before the execution stage, in less than a cycle.

Interference (other threads, interrupts, a hypervisor) only slows the chain. So it is run many
times, for a fraction of a millisecond each, and the fastest run counts. A core that was idle, or
that a hypervisor moves the thread to, starts at its lowest clock and needs some 50 ms to reach the
clock of a busy core: runs are repeated until no run is faster. This does not detect
a clock that changes between the timing and the window, or clocks that depend on the
instructions (AVX-512) or are paused for less than a run.

The cycles of an addition are known for x86-64 and 64-bit Arm: one, on all of their processors
(Fog, Instruction tables; Arm's software optimization guides). On other machines nothing is timed.
"""

from __future__ import annotations

import ctypes
import os
import platform
import threading
from collections.abc import Callable, Collection, Sequence
from functools import cache
from typing import Any

ADDITIONS = {
    "x86_64": ("addq $1, $0", "=r,r,0,~{flags}"),
    "aarch64": ("add $0, $0, $1", "=r,r,0"),
}
"""Machine -> the addition of operand 1 to operand 0, and the constraints of both."""
UNROLLED = 64
"""Additions between two jumps."""
CYCLES = 1 << 19
"""Cycles of a run, some 0.2 ms: long against a time reading, short against the timer's period."""
STEADY_RUNS = 100
"""The timing ends after this many runs without one that is 1 % faster (20 ms at 3 GHz; a clock that
rises stays at a step for up to 25 runs) ..."""
LONGEST_NS = 200_000_000
"""... or after this time: other threads share the core."""
MOST_CPUS = 16
"""The most CPUs that are timed; of more, a selection spread evenly."""
CLOCK_MONOTONIC = 1
ADDED = 3

LOOP = """
declare i32 @clock_gettime(i32, ptr)

define i64 @now(ptr %time) {{
  %error = call i32 @clock_gettime(i32 {clock}, ptr %time)
  %s = load i64, ptr %time
  %after = getelementptr i64, ptr %time, i64 1
  %ns = load i64, ptr %after
  %s_ns = mul i64 %s, 1000000000
  %all = add i64 %s_ns, %ns
  ret i64 %all
}}

define i64 @fastest_ns(i64 %rounds, i64 %added, i64 %steady, i64 %longest_ns) {{
entry:
  %time = alloca [2 x i64]
  %first = call i64 @now(ptr %time)
  br label %run
run:
  %same = phi i64 [ 0, %entry ], [ %steady_runs, %after ]
  %reference = phi i64 [ 9223372036854775807, %entry ], [ %last_rise, %after ]
  %best = phi i64 [ 9223372036854775807, %entry ], [ %better, %after ]
  %begin = call i64 @now(ptr %time)
  br label %chain
chain:
  %left = phi i64 [ %rounds, %run ], [ %fewer, %chain ]
  %sum = phi i64 [ %begin, %run ], [ %next, %chain ]
  %next = call i64 asm sideeffect "{additions}", "{constraints}"(i64 %added, i64 %sum)
  %fewer = sub i64 %left, 1
  %done = icmp eq i64 %fewer, 0
  br i1 %done, label %after, label %chain
after:
  %end = call i64 @now(ptr %time)
  %took = sub i64 %end, %begin
  %is_better = icmp slt i64 %took, %best
  %better = select i1 %is_better, i64 %took, i64 %best
  %hundredth = sdiv i64 %reference, 100
  %rise = sub i64 %reference, %hundredth
  %is_rise = icmp slt i64 %took, %rise
  %last_rise = select i1 %is_rise, i64 %took, i64 %reference
  %more = add i64 %same, 1
  %steady_runs = select i1 %is_rise, i64 0, i64 %more
  %spent = sub i64 %end, %first
  %again = icmp slt i64 %steady_runs, %steady
  %patient = icmp slt i64 %spent, %longest_ns
  %repeat = and i1 %again, %patient
  br i1 %repeat, label %run, label %end_of_runs
end_of_runs:
  ret i64 %better
}}
"""


@cache
def compile_chain() -> Callable[..., int] | None:
    """The compiled loop; None on a machine where the cycles of an addition are unknown."""
    if platform.machine() not in ADDITIONS:
        return None
    import llvmlite.binding as llvm  # noqa: PLC0415  (50 ms)

    machine, module = _parsed()
    engine = llvm.create_mcjit_compiler(module, machine)
    engine.finalize_object()
    kind = ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_int64] * 4)
    function = kind(engine.get_function_address("fastest_ns"))
    function.engine = engine  # type: ignore[attr-defined]  # it owns the machine code
    return function


def assembly() -> str:
    """The loop's assembly code for this machine."""
    machine, module = _parsed()
    return str(machine.emit_assembly(module))


def _parsed() -> tuple[Any, Any]:
    """LLVM's target machine, and the module with the loop."""
    import llvmlite.binding as llvm  # noqa: PLC0415

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    llvm.initialize_native_asmparser()
    addition, constraints = ADDITIONS[platform.machine()]
    text = LOOP.format(
        clock=CLOCK_MONOTONIC,
        additions=r"\0A".join([addition] * UNROLLED),
        constraints=constraints,
    )
    module = llvm.parse_assembly(text)
    module.verify()
    return llvm.Target.from_default_triple().create_target_machine(opt=2, jit=True), module


def timed_core_mhz(cpus: Collection[int] | None = None) -> tuple[float, ...]:
    """The clocks in MHz of these CPUs, timed on all of them at once in 20 ms to 0.2 s.

    Args:
        cpus: numbers of CPUs (default: those on which this process may run).

    Returns:
        One clock for each CPU, or of more than :data:`MOST_CPUS` for each of a selection; empty on
        a machine where the cycles of an addition are unknown, and where no CPU may be used.
    """
    chain = compile_chain()
    if chain is None:
        return ()
    mhz: dict[int, float] = {}

    def time_one(cpu: int) -> None:
        try:
            os.sched_setaffinity(0, {cpu})  # of this thread only
        except OSError:  # a CPU that this process may not use
            return
        took_ns = chain(CYCLES // UNROLLED, ADDED, STEADY_RUNS, LONGEST_NS)
        mhz[cpu] = 1e3 * CYCLES / took_ns

    every = sorted(os.sched_getaffinity(0) if cpus is None else cpus)
    threads = [threading.Thread(target=time_one, args=(cpu,)) for cpu in selected(every)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return tuple(mhz[cpu] for cpu in sorted(mhz))


def selected(cpus: Sequence[int]) -> list[int]:
    """At most :data:`MOST_CPUS` of these CPUs, spread evenly."""
    if len(cpus) <= MOST_CPUS:
        return list(cpus)
    return [cpus[i * (len(cpus) - 1) // (MOST_CPUS - 1)] for i in range(MOST_CPUS)]
