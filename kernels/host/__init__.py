"""The node's processor (vectors, caches, memory, threads), and the ranks of a kernel."""
