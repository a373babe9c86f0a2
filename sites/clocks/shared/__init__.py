"""What several clock controls share: what a control is, files that are put back, readings."""
