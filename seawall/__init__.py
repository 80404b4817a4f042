"""Seawall: the shared rooms of the gate, the controller and the probe."""

__version__ = "0.1.0"
