"""Envoy's global rate limit service."""
