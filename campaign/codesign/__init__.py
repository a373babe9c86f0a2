"""Studies of chips: which design runs a workload best."""
