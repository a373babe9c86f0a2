"""The plan: it turns a campaign file and its site files into points."""
