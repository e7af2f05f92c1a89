"""Fast implementations of the layers: in NumPy for the CPU (cpu/), in CUDA for GPUs (cuda/).

A *program* is a network made into *stages*: a stage does one layer, or several that belong together, such as a
convolution, ReLU and pooling. Begin with stages.py, which both folders share; then read stages.py and program.py in
cpu/ or cuda/.

Both folders offer what `networks.compute.Kernels` describes: `loss_and_grads`, `outputs` and `Pass`. Their results are
those of the layers as written, up to rounding. A layer without a stage of its own is computed as it is written.
"""
