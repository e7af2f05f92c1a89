#!/usr/bin/env bash
# Answers: does everything that needs real GPUs work on this machine, and how fast is it?
#
# In one go: one card first, then two, then the comparisons.
#
#     bash benchmarks/on_gpu.sh FOLDER [tests|measurements]
#
# FOLDER, from where you are, is new or empty: nothing is written over. Each step has a log there, and a line on the
# screen, with the notes of what it had to do in a slower way; one that fails does not stop the next. A step whose name
# begins with `same` compares what two runs learned.
#
# Python is $PYTHON, if that is set, else that of the environment that is active, of .venv, or python3. It needs what
# `pip install -e '.[gpu,cluster,test]'` brings, and for the comparisons PyTorch with CUDA. The tests may take five
# minutes on an idle H100, the measurements ten and more.
set -u
part=${2:-both}
if [ $# -lt 1 ] || [ $# -gt 2 ] || [[ $part != @(both|tests|measurements) ]]; then
    echo "usage: bash benchmarks/on_gpu.sh FOLDER [tests|measurements]" >&2
    exit 2
fi
python=${PYTHON:-${VIRTUAL_ENV:+$VIRTUAL_ENV/bin/python}}
here=$(cd "$(dirname "$0")/.." && pwd)
[ -n "$python" ] || [ ! -x "$here/.venv/bin/python" ] || python=$here/.venv/bin/python
python=${python:-python3}
[ -n "$(command -v "$python")" ] || { echo "no $python here" >&2; exit 2; }
python=$(realpath -s "$(command -v "$python")")
mkdir -p "$1" || exit 2
results=$(cd "$1" && pwd)
if [ -n "$(ls -A "$results")" ]; then
    echo "$results is not empty: name a new folder, so that nothing is written over" >&2
    exit 2
fi
cd "$here" || exit 2
export PYTHONPATH=$PWD PATH=$(dirname "$python"):$PATH
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1  # as in a container
code=0

step() { # step NAME SECONDS COMMAND...: the command's output goes to FOLDER/NAME.log
    local name=$1 limit=$2 begin=$SECONDS
    shift 2
    if timeout -k 10 "$limit" "$@" </dev/null >"$results/$name.log" 2>&1; then
        echo "ok      $name ($((SECONDS - begin)) s)"
        grep '^note:' "$results/$name.log"
    else
        echo "FAILED  $name ($((SECONDS - begin)) s): $(grep . "$results/$name.log" | tail -1)"
        code=1
    fi
}
# The others write FOLDER/NAME.json, too.
d2lmgpu() { step "$1" "$2" "$python" -m d2lmgpu "${@:3}" --json "$results/$1.json"; }
train() { d2lmgpu "gpu_train_$1" 120 train --environment gpu --init he --epochs 10 "${@:2}"; }
benchmark() { step "$1" "$2" "$python" "benchmarks/$3.py" "${@:4}" --json "$results/$1.json"; }
same() { # same ONE OTHER OPTION...: of two runs; each is the name that `train` has
    step "same_$1_$2" 20 "$python" benchmarks/same_runs.py "$results/gpu_train_$1.json" "$results/gpu_train_$2.json" "${@:3}"
}

timeout 30 nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv || exit 1
cards=$(timeout 60 "$python" -c 'import cupy; print(cupy.cuda.runtime.getDeviceCount())') || exit 1
step gpu_commit 20 git describe --always --dirty --abbrev=12
step gpu_versions 60 "$python" -c 'from importlib import metadata
for found in sorted(metadata.distributions(), key=lambda found: found.name.lower()): print(found.name, found.version)'
d2lmgpu gpu_devices 60 devices
d2lmgpu gpu_check 120 devices --check
if [ "$part" != tests ]; then
    train float32 --devices 1
    train again --devices 1
    same float32 again --bits
    d2lmgpu gpu_train_cpu 300 train --environment cpu --devices 1 --init he --epochs 1
    same float32 cpu --tolerance 1e-3
    train mixed --devices 1 --precision mixed
    same mixed float32 --tolerance 1e-2
    train 2048 --devices 1 --batch-size 2048
fi
if [ "$part" != measurements ]; then
    # the first run compiles some hundred kernels, which CuPy keeps
    step gpu_tests 900 "$python" -m pytest -q --all -m real_gpu -p no:cacheprovider
fi
if [ "$part" != tests ]; then
    benchmark gpu_measured 600 measure_gpu --precision float32,mixed --batch 256,2048
    train 2_devices --devices 2  # which share the card if there is one
    same 2_devices float32
    train 2_again --devices 2
    same 2_devices 2_again --bits
    for split in layers zero1; do
        train split_$split --devices 2 --split $split --epochs 1
        same split_$split float32 --tolerance 1e-3
    done
fi
if [ "$cards" -gt 1 ] && [ "$part" != tests ]; then
    step gpu_topology 20 nvidia-smi topo -m
    train 2_2048 --devices 2 --batch-size 2048
    same 2_2048 2048
    d2lmgpu gpu_allreduce 120 allreduce --environment gpu --devices "$cards" --algorithms ring,tree,halving_doubling,nccl
    train 2_nccl --devices 2 --allreduce nccl
    same 2_nccl float32
    for algorithm in ring nccl; do
        name=processes_$algorithm
        step "gpu_train_$name" 180 mpiexec -n 2 "$python" -m d2lmgpu train --environment parallel --init he --epochs 10 \
            --allreduce $algorithm --json "$results/gpu_train_$name.json"
        same $name float32
    done
    benchmark gpu_measured_2 600 measure_gpu --precision float32,mixed --batch 256,2048 --cards 2
fi
if [ "$part" != tests ]; then
    for race in float32 mixed 2048; do
        options=(--precision $race)
        [ $race != 2048 ] || options=(--batch 2048)
        benchmark gpu_pytorch_$race 300 compare_pytorch --environment gpu --rounds 15 "${options[@]}" \
            --plot "$results/gpu_pytorch_$race.png"
    done
fi
exit $code
