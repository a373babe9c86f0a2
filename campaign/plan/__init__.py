"""The plan: from a campaign file and its site files to points."""
