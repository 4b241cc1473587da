"""Who runs programs? Each backend joins code for its target to the driver's contract."""
