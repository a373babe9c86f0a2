"""Measuring one point on the node that it is to be measured on.

:mod:`campaign.measure.point_life` is a point's life; it runs in a subprocess of its own
(:mod:`campaign.measure.subprocesses`) that can be killed.
"""
