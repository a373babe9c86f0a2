"""What the node's processor is: vectors, caches, memory, threads and ranks."""
