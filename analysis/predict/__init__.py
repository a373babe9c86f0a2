"""The one model: a posterior of the times and powers of all kernels at all settings."""
