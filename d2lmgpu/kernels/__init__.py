"""Fast implementations of the layers: in NumPy for the CPU (cpu/), in CUDA for GPUs (cuda/).

They give the same results as the layers as they are written, which compute wherever there are no kernels. What a
network asks of either is `networks.compute.Kernels`.
"""
