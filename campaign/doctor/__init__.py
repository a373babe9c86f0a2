"""What a node or a cluster can measure and set."""
