"""What the compiler says of variants before they run, and which of them are left out."""

from __future__ import annotations

import csv
import json
from itertools import product
from pathlib import Path

import pytest
from pydantic import ValidationError

from campaign.plan.plan import Plan, make_plan
from campaign.verbs.command_line import main
from kernels.cuda.architectures import PROCESSORS, processor_of
from kernels.cuda.products.dgemm import GpuDgemmParams, gpu_dgemm, variant_use, with_use
from kernels.host.ranks import Team
from kernels.kernel import KernelError

ROOT = Path(__file__).parents[4]
LARGE = GpuDgemmParams(n=512, blk_m=128, blk_n=128, blk_k=64)
"""128 KiB of shared memory: too much for a block of sm_89 and sm_120."""
SPILLING = GpuDgemmParams(
    n=512, dim_m=32, dim_n=16, blk_m=256, blk_n=128, blk_k=4, m_a=128, m_b=4, n_b=128
)
"""64 sums of a thread take 128 registers, all that a block of 512 threads can have."""
TENSOR = GpuDgemmParams(
    n=8192, blk_m=128, blk_n=128, m_a=64, n_a=4, m_b=8, n_b=32, simd=1, mma="m16n8k8", stages=4
)


@pytest.fixture(scope="module")
def plan() -> Plan:
    return make_plan(ROOT / "examples/gpu-dgemm.toml")


def test_the_example_has_the_variants_of_plain_loops(plan) -> None:
    expected = set()
    for dim_m, dim_n in ((8, 16), (16, 8), (16, 16), (8, 32), (32, 8)):
        threads = dim_m * dim_n
        sizes = product((4, 6, 8, 10), (4, 6, 8, 10), (8, 16), (16, 64), (4, 16), (0, 1))
        for rows, columns, k, m_a, m_b, simd in sizes:
            m, w, n_a, n_b = rows * dim_m, columns * dim_n, threads // m_a, threads // m_b
            loads = k * (m + w) // threads
            numbers = rows * columns + rows + (1 + simd) * columns + loads
            if 2 * numbers + 30 > 228 or m * w < 32 * (m + w) or 8 * k * (m + w) > 49152:
                continue
            if m % (m_a * (1 + simd)) or k % n_a or k % (m_b * (1 + simd)) or w % n_b:
                continue
            expected.add((dim_m, dim_n, m, w, k, m_a, n_a, m_b, n_b, simd))
    found = [GpuDgemmParams.model_validate_json(text) for text in plan.spaces[0].params]
    names = ("dim_m", "dim_n", "blk_m", "blk_n", "blk_k", "m_a", "n_a", "m_b", "n_b", "simd")
    assert {tuple(getattr(params, name) for name in names) for params in found} == expected
    assert len(found) == len(expected) == 149
    assert {params.n for params in found} == {8192}


def test_the_example_has_the_tensor_variants_of_plain_loops(plan) -> None:
    expected = set()
    sizes = product((64, 128), (64, 128), (16, 32), (3, 4), ((2, 2), (2, 4), (4, 2)))
    for m, w, k, stages, (warps_m, warps_n) in sizes:
        sums = m * w // (32 * warps_m * warps_n)
        numbers = stages * (k * (m + 4) + w * (k + 4))
        if sums not in (32, 64) or numbers > 29056:
            continue
        shapes = ["m8n8k4", "m16n8k4", "m16n8k8"]
        shapes += ["m16n8k16"] if k == 32 and sums == 32 else []
        expected |= {(shape, 8 * warps_m, 4 * warps_n, m, w, k, stages) for shape in shapes}
    found = [GpuDgemmParams.model_validate_json(text) for text in plan.spaces[1].params]
    names = ("mma", "dim_m", "dim_n", "blk_m", "blk_n", "blk_k", "stages")
    assert {tuple(getattr(params, name) for name in names) for params in found} == expected
    assert len(found) == len(expected) == 112
    assert {(params.n, params.simd, params.band) for params in found} == {(8192, 1, 8)}


@pytest.mark.parametrize("architecture", ["sm_100", "sm_120"])
def test_variants_of_the_example_can_be_launched(plan, architecture: str) -> None:
    """Those that need most registers, by the compiler."""
    variants = [GpuDgemmParams.model_validate_json(text) for text in plan.spaces[0].params]
    variants.sort(key=lambda params: params.sums()[0] * params.sums()[1] * (2 + params.simd))
    largest = variants[:: -len(variants) // 6]
    assert launchable(largest, architecture) == largest
    for params, use in with_use(largest, architecture):
        assert use.registers > 2 * params.sums()[0] * params.sums()[1]
        assert use.resident_blocks >= 1


def launchable(variants: list[GpuDgemmParams], architecture: str) -> list[GpuDgemmParams]:
    return [params for params, use in with_use(variants, architecture) if not use.refusal]


def test_variants_are_refused_with_the_reason() -> None:
    variants = [GpuDgemmParams(n=512), LARGE, SPILLING]
    assert launchable(variants, "sm_120") == variants[:1]
    reasons = [use.refusal for _, use in with_use(variants, "sm_120")]
    assert reasons[0] == ""
    assert "131072 bytes of shared memory, and this GPU's have at most 101376" in reasons[1]
    assert "registers of a block of 512 threads do not suffice for 8 x 8 sums" in reasons[2]
    assert f"spills {variant_use(SPILLING, 'sm_120').spilled_bytes} bytes to memory" in reasons[2]
    assert launchable(variants, "sm_90") == variants[:2]
    assert variant_use(LARGE, "sm_90").resident_blocks == 1
    with pytest.raises(KernelError, match="no limits are known of sm_35, only of sm_80, "):
        variant_use(LARGE, "sm_35")


def test_tensor_variants_need_their_instruction_and_its_registers() -> None:
    small = TENSOR.model_copy(update={"mma": "m8n8k4"})
    assert gpu_dgemm.refused_on(TENSOR, "sm_80").startswith("mma m16n8k8 needs sm_90 or later")
    assert gpu_dgemm.refused_on(small, "sm_75").endswith("not sm_75: choose none")
    with pytest.raises(KernelError, match="not sm_80: choose m8n8k4 or none"):
        variant_use(TENSOR, "sm_80")
    # 64 sums of a thread and two slices: 128 + 96 registers.
    use = variant_use(TENSOR, "sm_90")
    assert (use.refusal, use.resident_blocks) == ("", 1)
    assert 128 + 96 < use.registers <= 255
    assert use.shared_bytes == 4 * 8 * (16 * 132 + 128 * 20)
    assert "choose" not in variant_use(small, "sm_80").refusal
    assert "blk_k or stages smaller" in gpu_dgemm.refused_on(small, "sm_120")


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"stages": 1}, "stages"),
        ({"simd": 0}, "simd"),
        ({"mma": "none"}, "stages"),
        ({"dim_m": 4, "dim_n": 64}, "dim_m"),
        ({"dim_m": 128, "dim_n": 2}, "dim_n"),
        ({"dim_m": 128, "blk_m": 128, "dim_n": 4, "m_b": 8, "n_b": 64, "n_a": 8}, "blk_m"),
        ({"dim_m": 8, "dim_n": 32, "blk_n": 96}, "blk_n"),
        ({"blk_k": 24, "m_b": 4, "n_b": 64}, "blk_k"),
        ({"stages": 8}, "blk_m"),
    ],
)
def test_parameters_that_tensor_cores_cannot_run_are_refused(changed: dict, named: str) -> None:
    with pytest.raises(ValidationError) as refused:
        GpuDgemmParams.model_validate(TENSOR.model_dump() | changed)
    assert refused.value.errors()[0]["ctx"]["error"].parameter == named


def test_resident_blocks_by_hand() -> None:
    hopper = processor_of("sm_90")
    # 8 warps of 40 registers: 2,048 threads. 12 warps of 168: each scheduler holds three.
    assert hopper.resident_blocks(256, 32, 8 << 10) == 8
    assert hopper.resident_blocks(256, 97, 8 << 10) == 2
    assert hopper.resident_blocks(384, 168, 8 << 10) == 1
    # 9 warps of 176 registers: two for each scheduler, and one warp has no place.
    assert hopper.resident_blocks(288, 168, 8 << 10) == 1
    assert hopper.resident_blocks(288, 176, 8 << 10) == 0
    assert hopper.resident_blocks(32, 32, 20 << 10) == 10
    assert hopper.resident_blocks(32, 32, 1 << 10) == 32
    assert hopper.resident_blocks(32, 32, 228 << 10) == 0
    assert processor_of("sm_120").resident_blocks(512, 40, 1 << 10) == 3
    assert all(one.block_shared_bytes < one.shared_bytes for one in PROCESSORS.values())


def test_resident_blocks_are_those_of_nvidias_calculator() -> None:
    """As ``cuda_occupancy.h`` of CUDA 13.0 gives them, for random blocks of every architecture."""
    with (Path(__file__).parents[1] / "resident_blocks.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert {row["architecture"] for row in rows} == set(PROCESSORS)
    for row in rows:
        block = (int(row[name]) for name in ("threads", "registers", "shared_bytes"))
        found = processor_of(row["architecture"]).resident_blocks(*block)
        assert found == int(row["resident_blocks"]), row


def test_without_a_gpu_it_says_where_to_run() -> None:
    """Where there is one, the product is computed and checked."""
    try:
        prepared = gpu_dgemm.prepare(GpuDgemmParams(n=100), Team())
    except KernelError as error:
        assert str(error).startswith("opening the GPU: ")
    else:
        prepared.run(20)
        prepared.check()
        prepared.close()


DGEMMS = """name = "c"
[[sites]]
site = "localgpu"
[[kernels]]
kernel = "gpu_dgemm"
params = { n = 512, blk_n = 128 }
[kernels.space]
blk_m = [64, 128]
blk_k = "16 : blk_m // 2 : 48"
"""
STENCILS = """name = "c"
[[sites]]
site = "localgpu"
[[kernels]]
kernel = "gpu_stencil"
params = { stencil = "j1d", size_1 = 4096, steps = 8, tile_t = 4 }
[kernels.space]
tile_1 = [16, 20000]
"""


def planned(folder: Path, text: str, *more: str) -> int:
    path = folder / "c.toml"
    path.write_text(text)
    return main(["plan", str(path), *more])


def test_variants_that_a_gpu_cannot_run_are_left_out(tmp_path: Path, capsys) -> None:
    """By the compiler, or by the formula of shared memory: a block of sm_120 has 99 KiB, one of
    sm_90 227. 8 x 64 x (128 + 128) bytes are 128 KiB, and 2 x 4 x 20,004 are 156."""
    stencils = STENCILS.replace("[16, 20000]", "[16, 20000, 32000]")
    for text, architecture, can, of, reason in (
        (DGEMMS, "sm_120", 2, 3, "blk_m=128 blk_k=64: it cannot be launched: a block needs 131072"),
        (DGEMMS, "sm_90", 3, 3, ""),
        (STENCILS, "sm_120", 1, 2, "tile_1=20000: a block needs 160,032 bytes of shared memory"),
        (STENCILS, "sm_90", 2, 2, ""),
        (stencils, "sm_90", 2, 3, "tile_1=32000: a block needs 256,032 bytes of shared memory"),
        (stencils, "sm_120", 1, 3, "tile_1=20000: a block needs 160,032 bytes of shared memory"),
    ):
        assert planned(tmp_path, text, "--architecture", architecture) == 0
        shown = " ".join("".join(capsys.readouterr()).split())
        assert f": {can} variants; the first:" in shown
        are = (
            "variant, which it cannot run, is"
            if of - can == 1
            else "variants, which it cannot run, are"
        )
        said = f"{architecture}: {of - can} {are} left out; the first:"
        assert (said in shown) == bool(reason)
        assert reason in shown
        assert planned(tmp_path, text, "--architecture", architecture, "--json") == 0
        assert len(json.loads(capsys.readouterr().out)) == can
        every = make_plan(tmp_path / "c.toml")
        kept = make_plan(tmp_path / "c.toml", architecture=architecture)
        assert len(every.points) == of
        assert {p.id for p in kept.points} < {p.id for p in every.points} or not reason


def test_a_site_says_which_gpus_it_has(tmp_path: Path, capsys) -> None:
    """Every verb that plans leaves the same variants out; parameters without a space stay."""
    built_in = (ROOT / "sites/builtin/localgpu.toml").read_text()
    (tmp_path / "gpus.toml").write_text(f'architecture = "sm_120"\n{built_in}')
    text = DGEMMS.replace('"localgpu"', '"gpus.toml"')
    large = '[[kernels]]\nkernel = "gpu_dgemm"\nlabel = "large"\nparams = { n = 512, blk_m = 128, '
    assert planned(tmp_path, f"{text}{large} blk_n = 128, blk_k = 64 }}\n") == 0
    assert "sm_120: 1 variant, which it cannot run, is left out" in capsys.readouterr().out
    planned_params = [json.loads(point.params) for point in make_plan(tmp_path / "c.toml").points]
    assert sorted((p["blk_m"], p["blk_k"]) for p in planned_params) == [
        (64, 16),
        (128, 16),
        (128, 64),
    ]
    (tmp_path / "gpus.toml").write_text(f'architecture = "hopper"\n{built_in}')
    assert planned(tmp_path, text) == 2
    assert "architecture: found 'hopper'; must be sm_ and digits" in capsys.readouterr().err
    none = text.replace("[64, 128]", "[128]").replace("16 : blk_m // 2 : 48", "64 : 64")
    (tmp_path / "gpus.toml").write_text(f'architecture = "sm_120"\n{built_in}')
    assert planned(tmp_path, none) == 2
    message = " ".join(capsys.readouterr().err.split())
    assert "sm_120, the architecture of localgpu, can run none of the 1 variants" in message


def test_a_plan_refuses_an_architecture_that_it_cannot_judge(tmp_path: Path, capsys) -> None:
    assert planned(tmp_path, STENCILS, "--architecture", "sm_35") == 2
    message = " ".join(capsys.readouterr().err.split())
    assert "c.toml:7: kernels[0].space: cannot determine which variants sm_35" in message
    assert "no limits are known of sm_35, only of sm_80" in message
    without = STENCILS.partition("[kernels.space]")[0].replace(
        "tile_t = 4", "tile_t = 4, tile_1 = 16"
    )
    assert planned(tmp_path, without, "--architecture", "sm_90") == 2
    message = " ".join(capsys.readouterr().err.split())
    assert "this campaign file has no space of a GPU kernel whose variants" in message
