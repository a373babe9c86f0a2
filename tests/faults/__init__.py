"""The fault run: campaigns and stores that are harmed on purpose, and a checker of what is left."""
