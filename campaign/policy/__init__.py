"""Picks as a cluster applies them."""
