"""Power against time of one measurement, with the measured windows."""

from __future__ import annotations

import numpy as np

from analysis.figures.figure import Axis, Band, Figure, Line, Panel
from analysis.figures.labels import marked, setting_label
from analysis.measurements.power_trace import PowerTrace

BINS = 350
"""The most intervals of time that are drawn, each with its lowest and highest power."""


def trace_figure(trace: PowerTrace, site: str, simulated: bool) -> Figure:
    """The power of a measurement, a panel a channel."""
    subject = f"{trace.kernel} at {setting_label(trace.setting)}"
    bands = [
        Band(float(start), float(end), "window", "measured window")
        for start, end in trace.windows_s
    ]
    panels = []
    for channel, (time_s, power_w) in trace.channels.items():
        drawn_s, drawn_w = _envelope(time_s, power_w)
        edge = 0.02 * max(float(np.ptp(time_s)), 1e-9)
        panels.append(
            Panel(
                f"Power, W: {channel}",
                Axis(
                    "time from the start of the window, s",
                    low=float(min(time_s.min(), trace.windows_s.min())) - edge,
                    high=float(max(time_s.max(), trace.windows_s.max())) + edge,
                ),
                Axis(low=min(0.0, float(power_w.min()))),
                [*bands, Line(drawn_s, drawn_w, "power", "power")],
                marked(f"Power against time of {subject}, {channel}, {site}", simulated),
                wide=True,
            )
        )
    return Figure(
        "power_trace",
        f"Power against time of one measurement: {subject}, the one with the median power. Its "
        f"window holds {trace.iterations:,} iterations of {trace.time_s:.3g} s; the energy of an "
        f"iteration is {trace.energy_j:.4g} J.",
        panels,
    )


def _envelope(time_s: np.ndarray, power_w: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The trace with at most two points an interval of time: those of the least and most power."""
    if len(time_s) <= 2 * BINS:
        return time_s, power_w
    parts = np.array_split(np.arange(len(time_s)), BINS)
    indices = [
        k
        for part in parts
        for k in sorted({part[np.argmin(power_w[part])], part[np.argmax(power_w[part])]})
    ]
    return time_s[indices], power_w[indices]
