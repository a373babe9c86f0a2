"""From an xarray Dataset to coefficients, cross-validation, picks, figures and reports."""
