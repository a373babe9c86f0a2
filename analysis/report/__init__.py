"""The report that a person reads: what was measured and fitted, in one self-contained HTML file."""
