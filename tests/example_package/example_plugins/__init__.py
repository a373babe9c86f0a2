"""A meter, a clock control, a kernel, a scheduler and an importer for dvfs-campaign."""
