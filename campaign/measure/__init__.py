"""Measuring one point on its node.

:mod:`campaign.measure.point_life` is what happens from setting clocks to restoring them. It runs
in a subprocess of its own (:mod:`campaign.measure.subprocesses`) that can be killed.
"""
