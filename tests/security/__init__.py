"""What hostile text, strangers and other users can do: nothing, shown by trying."""
