"""Figures as data, and the two ways to draw them: SVG in the report, files by matplotlib."""
