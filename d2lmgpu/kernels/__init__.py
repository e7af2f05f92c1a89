"""Fast bodies of the layers: for the CPU in NumPy (cpu/), for GPUs in CUDA (cuda/)."""
