"""The documentation, run: its commands, its Python, its files, its site and its notebook."""
