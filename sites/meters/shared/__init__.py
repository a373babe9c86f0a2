"""Code that meters share: the interface of a meter, counters that wrap, open files, commands."""
