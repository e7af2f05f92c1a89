#!/usr/bin/env bash
# Everything that needs a real GPU, in one go: the tests, the kernels' times, the comparison with PyTorch, two devices.
#
#     bash benchmarks/on_gpu.sh [FOLDER [tests|measurements]]      results go to FOLDER, or to benchmarks/results
#
# Needs a Python with CuPy, PyTorch (CUDA build), pytest and the package's own requirements. The tests take some five
# minutes, the measurements as long, on an otherwise idle GPU.
set -u
cd "$(dirname "$0")/.."
results=${1:-benchmarks/results}
mkdir -p "$results"
export PYTHONPATH=$PWD
code=0

nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv || exit 1
python3 -c 'import cupy, numpy; print("cupy", cupy.__version__, "numpy", numpy.__version__)' || exit 1
python3 -m d2lmgpu devices --json "$results/gpu_devices.json" || code=1
timeout 60 python3 -m d2lmgpu devices --check --json "$results/gpu_check.json" || code=1  # NCCL may be missing

set -o pipefail
part=${2:-both}
if [ "$part" != measurements ]; then
    # the first run compiles some hundred kernels, which CuPy keeps
    timeout 600 python3 -m pytest -q --all -m real_gpu 2>&1 | tail -40 || code=1
fi
[ "$part" != tests ] || exit $code
for precision in float32 tf32 mixed; do
    timeout 60 python3 -m d2lmgpu train --environment gpu --devices 1 --init he --precision $precision \
        --epochs 10 --json "$results/gpu_train_$precision.json" || code=1
done
timeout 60 python3 -m d2lmgpu train --environment gpu --devices 2 --init he --epochs 10 \
    --json "$results/gpu_train_2_devices.json" || code=1
timeout 120 python3 benchmarks/measure_gpu.py --precision float32,tf32,mixed --batch 256,2048 \
    --json "$results/gpu_measured.json" || code=1
for precision in float32 tf32 mixed; do
    timeout 240 python3 benchmarks/compare_pytorch.py --environment gpu --precision $precision --rounds 15 \
        --json "$results/gpu_pytorch_$precision.json" --plot "$results/gpu_pytorch_$precision.png" || code=1
done
timeout 240 python3 benchmarks/compare_pytorch.py --environment gpu --batch 2048 --rounds 15 \
    --json "$results/gpu_pytorch_2048.json" --plot "$results/gpu_pytorch_2048.png" || code=1
timeout 60 python3 -m d2lmgpu allreduce --environment gpu --devices 2 --json "$results/gpu_allreduce.json" || code=1
exit $code
