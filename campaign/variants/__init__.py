"""Variants of kernels: searched, studied, and predicted where they were not measured."""
