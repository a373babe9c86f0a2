"""The U phase of the FMM as a separate kernel, in some 480 variants."""
