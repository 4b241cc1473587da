"""Devices: each joins code for its target to the driver."""
