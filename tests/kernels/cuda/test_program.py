"""Compiling CUDA without a GPU: what a function needs, what is kept, and what goes wrong."""

from __future__ import annotations

import builtins
from pathlib import Path

import pytest

from kernels.cuda.device import REMEDIES, Gpu, explained
from kernels.cuda.listing import disassemble, read_listing
from kernels.cuda.program import Source, compile_program
from kernels.host.ranks import Team
from kernels.kernel import KernelError

SPILLING = """\
extern "C" __global__ void __launch_bounds__(1024, 2) spills(float *x) {
    float y[COUNT];
    #pragma unroll
    for (int i = 0; i < COUNT; i++) y[i] = x[i * 1024 + threadIdx.x];
    __syncthreads();
    #pragma unroll
    for (int i = 0; i < COUNT; i++) x[i * 1024 + threadIdx.x] = y[i] * y[COUNT - 1 - i];
}
extern "C" __global__ void shares(float *x) {
    __shared__ float y[256];
    y[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    x[threadIdx.x] = y[255 - threadIdx.x];
}
"""


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Source:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    path = tmp_path / "own.cu"
    path.write_text(SPILLING)
    return Source(path=path, macros={"COUNT": 64})


def test_registers_spills_and_shared_memory_are_the_compilers(source: Source) -> None:
    """Two blocks of 1,024 threads leave 32 registers a thread: 64 values do not fit."""
    functions = compile_program(source, "sm_90").functions
    assert set(functions) == {"spills", "shares"}
    assert functions["spills"].registers <= 32
    assert functions["spills"].spilled_bytes > 64
    assert functions["shares"].shared_bytes == 1024
    assert functions["shares"].spilled_bytes == 0
    few = compile_program(Source(path=source.path, macros={"COUNT": 4}), "sm_90").functions
    assert few["spills"].spilled_bytes == 0


def test_what_was_compiled_is_kept_by_what_it_depends_on(
    source: Source, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = compile_program(source, "sm_90")
    kept = tmp_path / "cache" / "dvfs-campaign" / "cuda"
    assert len(list(kept.glob("*.cubin"))) == 1
    imported = builtins.__import__

    def without_cuda(name, *more):
        if name.startswith("cuda"):
            raise ModuleNotFoundError("No module named 'cuda'", name="cuda")
        return imported(name, *more)

    monkeypatch.setattr(builtins, "__import__", without_cuda)
    assert compile_program(source, "sm_90") == first
    for other, architecture in ((source, "sm_80"), (Source(path=source.path, macros={}), "sm_90")):
        with pytest.raises(KernelError, match=r"cannot be imported.*dvfs-campaign\[cuda13\]"):
            compile_program(other, architecture)
    monkeypatch.setattr(builtins, "__import__", imported)
    assert read_listing(disassemble(first.cubin)).keys() == {"spills", "shares"}
    compile_program(source, "sm_80")
    assert len(list(kept.glob("*.cubin"))) == 2
    source.path.write_text(SPILLING.replace("255 -", "254 -"))
    assert compile_program(source, "sm_90").cubin != first.cubin


def test_a_cache_that_cannot_be_written_is_done_without(
    source: Source, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert compile_program(source, "sm_90").cubin


def test_what_the_compiler_refuses_is_said(source: Source) -> None:
    with pytest.raises(KernelError, match="does not know the architecture sm_35: install one for"):
        compile_program(source, "sm_35")
    source.path.write_text("extern garbage {")
    with pytest.raises(KernelError, match=r"own\.cu: .*error"):
        compile_program(source, "sm_90")
    with pytest.raises(KernelError, match="nvdisasm: "):
        disassemble(b"no machine code")


def test_a_compiler_that_is_not_installed(source: Source, monkeypatch: pytest.MonkeyPatch) -> None:
    import cuda.core
    from cuda.pathfinder import DynamicLibNotFoundError

    def not_found(*_: object) -> None:
        raise DynamicLibNotFoundError('Failure finding "libnvrtc.so.13"')

    monkeypatch.setattr(cuda.core, "Program", not_found)
    with pytest.raises(KernelError, match=r"NVRTC is not installed: .*dvfs-campaign\[cuda13\]"):
        compile_program(source, "sm_90")


def test_without_a_driver_the_message_says_where_to_run() -> None:
    """No machine that runs the tests has a driver; where one does, the GPU is opened."""
    try:
        Gpu(Team()).close()
    except KernelError as error:
        text = str(error)
        assert text.startswith("opening the GPU: ")
        assert "run where `nvidia-smi -L` lists a GPU, with `--gres=gpu:1` in a Slurm job" in text


@pytest.mark.parametrize("name", REMEDIES)
def test_errors_of_the_driver_have_a_remedy(name: str) -> None:
    said = pytest.raises(KernelError, match=f"running the kernel: {name}: ")
    with said as refused, explained("running the kernel"):
        raise RuntimeError(f"{name}: the driver's own words")
    assert REMEDIES[name] in str(refused.value)


def test_other_errors_are_not_hidden() -> None:
    with pytest.raises(ZeroDivisionError), explained("running the kernel"):
        raise ZeroDivisionError
