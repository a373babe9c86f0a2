"""Hardware counters of a node's processor around a measurement's window.

:mod:`~sites.counters.group_file`: which events are counted, and what is derived from them.
:mod:`~sites.counters.counting`: counting them with perf_event_open, or from a recorded tree.
"""
