"""The campaign: its file, plan, launching, measuring, store and command line."""
