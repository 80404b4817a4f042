"""Benchmarks: what a call, a message and a request cost in CPU. See docs/benchmarks.md."""
