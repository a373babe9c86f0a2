"""The node's processor: vectors, caches, memory, threads and ranks."""
