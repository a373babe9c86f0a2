"""The U phase alone as a kernel, in some 480 variants."""
