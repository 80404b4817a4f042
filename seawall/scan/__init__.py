"""Patterns over text and over streams of text: which rule matches where, and what leaves in its place."""
