"""The energy model: its terms and forms, voltages, the fit, and what a fit says."""
