"""A package with ten flaws and ten harmless look-alikes. It is read by the tests and never imported.

A flaw has ``# source: NAME`` on the line where its data comes in, and ``# sink: NAME`` on the line where it does harm.
"""
