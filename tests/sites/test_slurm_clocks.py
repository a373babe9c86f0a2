"""Slurm's clocks: what a step is asked with, what it is checked by, and how Slurm refuses."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from dvfs.setting import AS_FOUND, Setting
from sites.clocks import IllegalClockError, open_control
from sites.clocks.slurm import refusal, slurm_cannot_set, slurm_flags, step_flags
from sites.site_file import Site

NAN = math.nan


@pytest.mark.parametrize(
    ("core_mhz", "mem_mhz", "device", "flags"),
    [
        # srun's manual: --gpu-freq=[<type]=value>][,<type=value>], the only type is memory, in MHz.
        (1410.0, 1593.0, "gpu", "--gpu-freq=1410,memory=1593"),
        (1410.0, NAN, "gpu", "--gpu-freq=1410,memory=high"),
        (NAN, 1593.0, "gpu", "--gpu-freq=high,memory=1593"),
        # --cpu-freq is in kHz, and has no memory clock.
        (2400.0, NAN, "cpu", "--cpu-freq=2400000"),
        (2400.0, 1000.0, "cpu", "--cpu-freq=2400000"),
        (NAN, NAN, "cpu", ""),
        (NAN, NAN, "gpu", ""),
    ],
)
def test_the_flags_for_a_setting(core_mhz, mem_mhz, device, flags):
    assert slurm_flags(Setting.of(core_mhz, mem_mhz), device) == flags
    setting = Setting(*(None if math.isnan(mhz) else mhz for mhz in (core_mhz, mem_mhz)))
    assert " ".join(step_flags(setting, device)) == flags
    # srun has no option for the uncore clock of a CPU.
    left_out = "mem_mhz" if device == "cpu" and not math.isnan(mem_mhz) else ""
    assert slurm_cannot_set(Setting.of(core_mhz, mem_mhz), device) == left_out
    # Nor one for a power limit, which asks for no clock.
    limited = Setting.of(core_mhz, mem_mhz, power_limit_w=150.0)
    assert slurm_flags(limited, device) == flags
    assert slurm_cannot_set(limited, device) == "power_limit_w"


@pytest.mark.parametrize(
    ("line", "is_refusal"),
    [
        # src/plugins/gpu/generic, also of Slurm 22.05 in the tests on a real cluster
        ("GpuFreq=control_disabled", True),
        # src/plugins/gpu/nvml
        ("Could not set frequencies for all GPUs. Set 0/2 total GPUs", True),
        (
            "slurmstepd: error: _nvml_set_freqs: Failed to set GPU clock frequency (1410) for the "
            "GPU: Insufficient Permissions",
            True,
        ),
        (
            "slurmstepd: error: _nvml_set_freqs: Failed to set memory and graphics clock frequency "
            "pair (1593, 1410) for the GPU: Not Supported",
            True,
        ),
        # src/plugins/gpu/rsmi and oneapi
        ("slurmstepd: error: RSMI: Failed to set graphic frequency GPU 0 error: 2", True),
        ("slurmstepd: error: Failed to set frequency range: 900.0~900.0, error:0x78000001", True),
        # src/common/cpu_frequency.c
        (
            "slurmstepd: error: _cpu_freq_set_gov: Can not set CPU governor: Permission denied",
            True,
        ),
        (
            "slurmstepd: error: _cpu_freq_set_scaling_freq: Can not set scaling_setspeed: Device "
            "or resource busy",
            True,
        ),
        ("slurmstepd: error: Rounding requested frequency 1 up to lowest available 800000", True),
        ("srun: error: Invalid --gpu-freq argument: fast", True),
        # What the nvml plugin prints of a clock that it took, and what programs print.
        ("GpuFreq=memory_freq:1593,graphics_freq:1410", False),
        ("slurmstepd: error: Detected 1 oom_kill event in StepId=7.0", False),
        ("scaling test: frequency of 12 words set", False),
        ("", False),
    ],
)
def test_how_slurm_refuses_a_clock(line, is_refusal):
    said = refusal(f"before\n{line}\nafter\n")
    assert said == (line if is_refusal else None)


def step_site(device: str) -> Site:
    return Site.model_validate(
        {
            "name": "cluster",
            "partitions": {"all": {"scheduler": "slurm"}},
            "domains": {"core": {"frequencies_mhz": [1410.0]}},
            "clocks": {"control": "slurm", "device": device},
        }
    )


@pytest.mark.parametrize(
    ("device", "variable", "right", "wrong"),
    [
        ("gpu", "SLURMD_TRES_FREQ", "gpu:1410,memory=high", "gpu:1410"),
        ("cpu", "SLURM_CPU_FREQ_REQ", "1410000", "1410"),
    ],
)
def test_a_step_without_its_request_is_refused(
    tmp_path: Path, monkeypatch, device, variable, right, wrong
):
    control = open_control(step_site(device), tmp_path)
    control.set(AS_FOUND)
    monkeypatch.setenv(variable, right)
    control.set(Setting(1410.0))
    monkeypatch.setenv(variable, wrong)
    with pytest.raises(IllegalClockError, match=variable):
        control.set(Setting(1410.0))
    monkeypatch.delenv(variable)
    with pytest.raises(IllegalClockError, match="is this process a job step"):
        control.set(Setting(1410.0))
    # The request alone is no state of the clocks.
    assert control.state().setting == AS_FOUND
