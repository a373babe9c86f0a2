"""A small simulated campaign for runs that are watched."""

from __future__ import annotations

CAMPAIGN = """\
name = "watched"
repeats = 2
[[sites]]
site = "jetson-tk1"
settings = { choose = "random", count = 4, seed = 1 }
[protocol]
min_duration_s = 1.0
[[kernels]]
kernel = "load"
params = { level = ["l1", "dram"] }
"""
