"""NVML's own model of power: the estimated power at each core clock, and the clock at which it
expects the best performance per watt.

nvmlDevicePerfMetricsGetSamples_v1 of NVIDIA's NVML API reference, new in NVML 610: up to 13 samples
of its controllers, of which the kind PFPP 1x has this model. Which GPUs have it is not documented.
The estimates hold for the load at the time of the sample.
"""

from __future__ import annotations

from contextlib import closing, suppress
from pathlib import Path
from typing import Any

from sites.nvml_library import Gpu, NvmlError, NvmlLibrary, find_gpus, open_library


def power_models(root: Path = Path("/")) -> list[dict[str, Any]]:
    """The power model of each usable GPU that has one, as plain JSON.

    ``gpu``: its UUID; ``best_core_mhz``, ``best_power_w``: the point of the best performance per
    watt; ``core_mhz``, ``power_w``: lists of the same length, the estimated power at each clock.
    Empty where there is no NVML, no GPU, or no model.
    """
    with suppress(NvmlError), closing(open_library(root)) as library:
        models = [_power_model(library, gpu) for gpu in find_gpus(library)]
        return [model for model in models if model is not None]
    return []


def _power_model(library: NvmlLibrary, gpu: Gpu) -> dict[str, Any] | None:
    """The last valid model among the samples."""
    nvml = library.nvml
    if not hasattr(nvml, "nvmlDevicePerfMetricsGetSamples_v1"):  # an older nvidia-ml-py
        return None
    samples = nvml.c_nvmlPerfMetricsSamples_v1_t()
    try:
        with library.explained(f"the power model of {gpu.label}"):
            nvml.nvmlDevicePerfMetricsGetSamples_v1(gpu.handle, samples)
    except NvmlError:  # The model is only recorded: its absence must not end a campaign.
        return None
    last = None
    for sample in samples.samples[: samples.numSamples]:
        for controller in sample.controllerData[: sample.numControllerData]:
            if controller.controllerType != nvml.NVML_PERF_METRICS_CONTROLLER_TYPE_PFPP_1X:
                continue
            model = controller.data.pfpp1x.estimatedMetrics
            if model.bValid and model.maxPerfPerWattPoint.freqkHz:
                last = model
    if last is None:
        return None
    core_index = nvml.NVML_PERF_METRICS_PWR_MODEL_SCALE_METRICS_PFPP_1X_GPCCLK_IDX
    points = last.estimatedMetrics[: last.numVfPoints]
    return {
        "gpu": gpu.uuid,
        "best_core_mhz": last.maxPerfPerWattPoint.freqkHz / 1e3,
        "best_power_w": last.maxPerfPerWattPoint.pwrmW / 1e3,
        "core_mhz": [point.freqkHz[core_index] / 1e3 for point in points],
        "power_w": [point.estTgpPwrmW / 1e3 for point in points],
    }
