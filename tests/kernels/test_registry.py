"""What help and documentation say about the kernels is in the kernels' own files."""

from __future__ import annotations

import subprocess
import sys

import pytest

from dvfs.dataset import CLASS_UNITS, class_unit
from kernels.classes import CLASSES
from kernels.parameters import parameters_of
from kernels.registry import KERNELS, find_kernel


def test_every_class_has_a_meaning_in_its_unit() -> None:
    assert set(CLASSES) <= set(CLASS_UNITS)
    for name, meaning in CLASSES.items():
        assert ("bytes" in meaning) == (class_unit(name) == "byte"), name
        assert ("floating-point" in meaning) == (class_unit(name) == "flop"), name


@pytest.mark.parametrize("name", KERNELS)
def test_a_description_is_complete(name: str) -> None:
    kernel = find_kernel(name)
    assert kernel.name == name
    assert kernel.summary
    assert kernel.counted
    assert set(kernel.classes) <= set(CLASSES)
    parameters = parameters_of(kernel)
    assert {p.name for p in parameters} == set(kernel.params.model_fields)
    for parameter in parameters:
        assert parameter.description, parameter.name
        assert parameter.values, parameter.name
        assert parameter.default is None or not parameter.required


def test_kernels_are_imported_and_microbenchmarks_counted_without_numba() -> None:
    """All kernels but stencils, which are planned by their loops."""
    code = (
        "import sys; from kernels.registry import OURS, find_kernel;"
        "kernels = {name: find_kernel(name) for name in OURS if 'stencil' not in name};"
        "[kernels[name].counts(kernels[name].params()) for name in ('sp_fma', 'int_mad')];"
        "[kernels[name].counts(kernels[name].params(level='l1')) for name in ('load', 'chase')];"
        "print([name for name in ('numba', 'llvmlite') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_values_are_described_in_words() -> None:
    allowed = {p.name: p.values for p in parameters_of(find_kernel("fmm"))}
    assert allowed["digits"] == "integer >= 3 and <= 10"
    assert allowed["precision"] == "single, double"
    assert allowed["q"] == "integer >= 1"
    (argv, *_) = parameters_of(find_kernel("command"))
    assert argv.required
    assert argv.values == "list of strings"


@pytest.mark.parametrize(
    ("name", "params"),
    [
        *((name, {}) for name in ("sp_fma", "dp_fma", "int_mad", "idle")),
        *((name, {"level": level}) for name in ("load", "chase") for level in ("l1", "dram")),
        ("dp_fma", {"level": "l3", "ops_per_word": 2}),
        ("fmm", {"n": 500, "digits": 4}),
        ("fmm_u", {"n": 500, "precision": "double"}),
        ("dgemm", {"n": 500}),
        ("cuda_dgemm", {"n": 500}),
        *(("gpu_load", {"level": level}) for level in ("shared", "l1", "l2", "dram")),
        *(("gpu_chase", {"level": level}) for level in ("shared", "l1", "l2", "dram")),
        *(("gpu_mma", {"number": number}) for number in ("dp", "half", "bf16", "fp8")),
        *(("gpu_sfu", {"ops_per_value": ops}) for ops in (0, 1)),
    ],
)
def test_a_kernel_counts_only_the_classes_that_it_declares(name: str, params: dict) -> None:
    kernel = find_kernel(name)
    counts = kernel.counts(kernel.params(**params))
    assert set(counts) <= set(kernel.classes)
