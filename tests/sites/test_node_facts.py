"""What a node is, read from trees of /proc and /sys as different machines have them."""

from __future__ import annotations

from pathlib import Path

from sites.node_facts import node_facts, slurm_facts


def tree(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def test_a_server_with_nvidia_gpus(tmp_path):
    facts = node_facts(
        tree(
            tmp_path,
            {
                "proc/cpuinfo": "processor\t: 0\nmodel\t\t: 143\n"
                "model name\t: Intel(R) Xeon(R) Platinum 8480C\n\nprocessor\t: 1\n"
                "model name\t: another\n",
                "proc/driver/nvidia/version": "NVRM version: NVIDIA UNIX Open Kernel Module for "
                "x86_64  560.35.03  Release Build  (dvs-builder)\nGCC version:  gcc 12.3.0\n",
                "proc/driver/nvidia/gpus/0000:18:00.0/information": "Model: \t\t NVIDIA H200\n"
                "IRQ:   \t\t 186\n",
                "proc/driver/nvidia/gpus/0000:2a:00.0/information": "Model: \t\t NVIDIA H200\n",
            },
        )
    )
    assert facts["cpu"] == "Intel(R) Xeon(R) Platinum 8480C"
    assert facts["gpus"] == ["NVIDIA H200", "NVIDIA H200"]
    assert facts["gpu_driver"] == "560.35.03"
    assert "board" not in facts
    closed = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.14  Thu Feb 22 01:44:30 UTC\n"
    tree(tmp_path, {"proc/driver/nvidia/version": closed})
    assert node_facts(tmp_path)["gpu_driver"] == "550.54.14"


def test_an_arm_board_and_amd_gpus(tmp_path):
    facts = node_facts(
        tree(
            tmp_path,
            {
                "proc/cpuinfo": "processor\t: 0\nCPU implementer\t: 0x41\nCPU variant\t: 0x1\n"
                "CPU part\t: 0xd42\n",
                "proc/device-tree/model": "NVIDIA Jetson AGX Orin\0",
                "sys/class/drm/card0/device/vendor": "0x1002\n",
                "sys/class/drm/card0/device/device": "0x740f\n",
                "sys/class/drm/card0-DP-1/device/vendor": "0x1002\n",
                "sys/class/drm/card1/device/vendor": "0x10de\n",
                "sys/module/amdgpu/version": "6.7.0\n",
            },
        )
    )
    assert facts["cpu"] == "implementer 0x41 part 0xd42 variant 0x1"
    assert facts["board"] == "NVIDIA Jetson AGX Orin"
    assert facts["gpus"] == ["AMD 0x740f"]
    assert facts["gpu_driver"] == "6.7.0"


def test_nothing_to_read_is_left_out(tmp_path, monkeypatch):
    facts = node_facts(tmp_path)
    assert {"gpus", "gpu_driver", "board"}.isdisjoint(facts)
    monkeypatch.setenv("SLURM_JOB_ID", "77")
    monkeypatch.delenv("SLURM_CLUSTER_NAME", raising=False)
    assert slurm_facts()["job"] == "77"
    assert "cluster" not in slurm_facts()
