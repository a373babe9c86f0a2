"""Files from elsewhere, damaged at random: read, or refused with a clear message."""
