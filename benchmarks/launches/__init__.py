"""All kernels that the package launches, and what they take of an architecture: the parts of compile_kernels.py."""
