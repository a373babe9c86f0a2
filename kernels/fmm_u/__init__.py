"""The U phase of the FMM alone as a kernel, in some 480 variants."""
