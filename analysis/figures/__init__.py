"""Figures: each is one SVG drawing, for the report's page and as a file for a paper."""
