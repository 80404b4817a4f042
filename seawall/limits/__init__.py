"""Limits (rules), counters (a rule bound to a caller's values) and the arithmetic of windows."""
