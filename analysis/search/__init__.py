"""Search: which candidates to measure next, from what is measured so far."""
