"""The parts of predict_gpu.py and compile_kernels.py: see there."""
