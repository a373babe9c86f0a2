"""Matrix products on the host, in variants."""
