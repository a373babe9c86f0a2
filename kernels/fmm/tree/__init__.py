"""The tree: Morton keys, the adaptive octree, the interaction lists, the points' layout."""
