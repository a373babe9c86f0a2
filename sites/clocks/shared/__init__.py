"""What several clock controls share: what a control is, the journal, files that are restored."""
