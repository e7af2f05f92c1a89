"""The language in which collectives and training steps are written, and its readers."""
