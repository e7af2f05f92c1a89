#!/usr/bin/env bash
# Everything that needs a real GPU, in one go: the tests, the comparison with PyTorch, two devices on one card.
#
#     bash benchmarks/on_gpu.sh [FOLDER]      results go to FOLDER, or to benchmarks/results
#
# Needs a Python with CuPy, PyTorch (CUDA build), pytest and the package's own requirements.
set -u
cd "$(dirname "$0")/.."
results=${1:-benchmarks/results}
mkdir -p "$results"
export PYTHONPATH=$PWD
code=0

nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv || exit 1
python3 -c 'import cupy, numpy; print("cupy", cupy.__version__, "numpy", numpy.__version__)' || exit 1
python3 -m d2lmgpu devices || code=1

timeout 240 python3 -m pytest -q -k "gpu and not standin" 2>&1 | tail -30 || code=1
for k in 1 2; do
    timeout 200 python3 -m d2lmgpu train --environment gpu --devices $k --init he \
        --epochs 3 --json "$results/gpu_train_${k}_devices.json" || code=1
done
timeout 120 python3 benchmarks/compare_pytorch.py --environment gpu --json "$results/gpu_pytorch_eager.json" || code=1
timeout 60 python3 -m d2lmgpu allreduce --environment gpu --devices 2 --json "$results/gpu_allreduce.json" || code=1
exit $code
