"""Code that clock controls share: the interface of a control, the journal, restored files."""
