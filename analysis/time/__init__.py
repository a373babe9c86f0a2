"""Models of run time: what a kernel takes at a setting where it was not measured."""
