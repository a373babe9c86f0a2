"""The operators: interaction kernels, surfaces, and the matrices between them."""
