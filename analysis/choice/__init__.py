"""The choice of a setting: picks, what they lose, and cross-validation."""
