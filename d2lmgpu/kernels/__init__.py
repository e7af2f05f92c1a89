"""Fast implementations of the layers: in NumPy for the CPU (cpu/), in CUDA for GPUs (cuda/)."""
