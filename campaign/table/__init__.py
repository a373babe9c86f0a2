"""The measurements table: other people's tables in, through a map file, and ours out."""
