"""How does a program get better? By programs of its own kind, which work on it as columns of numbers."""
