"""How is a program written for a target? Emitters are pure: a program in, text out; devices are elsewhere."""
