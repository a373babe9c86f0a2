"""The tree: Morton keys, the adaptive octree, the U, V, W and X lists, and the points' layout."""
