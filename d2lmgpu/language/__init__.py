"""The language for collectives and training steps, and the modules that interpret it."""
