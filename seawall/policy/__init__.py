"""The policy document: read, checked with all its mistakes at once, and compiled into one immutable Policy."""
