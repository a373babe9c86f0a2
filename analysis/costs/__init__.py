"""Printed cost equations over plain arrays: time and energy of a variant before it is measured."""
