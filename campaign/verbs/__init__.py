"""The verbs of the command line: each takes the parsed arguments and returns the exit code."""
