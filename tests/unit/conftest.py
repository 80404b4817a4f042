"""Hypothesis for all unit tests: no outcome depends on how busy the machine is."""

from hypothesis import settings

settings.register_profile("unit", deadline=None)
settings.load_profile("unit")
