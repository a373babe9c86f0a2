"""The tree: Morton keys, the adaptive octree, U, V, W and X lists, and the points' layout."""
