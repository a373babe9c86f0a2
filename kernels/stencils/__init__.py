"""Stencils over time, in tiles of space and time (Prajapati 2019, appendices A and B)."""
