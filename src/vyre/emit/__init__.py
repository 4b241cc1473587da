"""Emitters: pure functions from programs to the text of a target. They need no device."""
