"""From what a profiler counted to a profile file, by a map of counters to classes."""
