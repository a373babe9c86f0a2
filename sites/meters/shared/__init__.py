"""What several meters share: what a meter is, counters that wrap, files kept open, commands."""
