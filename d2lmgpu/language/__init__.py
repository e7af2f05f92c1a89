"""The language for collectives and training steps, and the modules that read it."""
