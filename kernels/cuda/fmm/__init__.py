"""The fast multipole method on a GPU."""
