"""The operators: interaction kernels, equivalent and check surfaces, and matrices."""
