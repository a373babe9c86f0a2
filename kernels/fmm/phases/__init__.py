"""The phases of an evaluation: U and its pair sums, V and its transforms, W, X, up and down."""
