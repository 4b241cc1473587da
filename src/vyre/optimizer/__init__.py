"""The optimizer: proved rewrite rules, value sharing, dead code and placement, run as vyre programs on columns."""
