"""Measures one point on its node.

:mod:`campaign.measure.point_life` does the whole measurement, from setting clocks to restoring
them, in a subprocess (:mod:`campaign.measure.subprocesses`) that can be killed.
"""
