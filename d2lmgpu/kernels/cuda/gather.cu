// The next minibatch, from a data set that lies in the GPU's memory.
//
//   images (M, P) uint8, labels (M,) uint8: the whole data set
//   order int32: the numbers of the images in the order of this epoch, this device's shard of each minibatch in turn
//   starts int32: minibatch s of this device is order[starts[s] : starts[s+1]]
//   step (1,) int32: the number of the minibatch
//   -> x (n, P) float32 in 0..1, y (n,) int32, count (1,) int32: how many of the n are examples
//
// A captured graph replays the same kernels with the same arguments. What changes from step to step is therefore in
// device memory: softmax_cross_entropy_sum adds 1 to the step, and what comes later finds the next minibatch. A training
// step ends with gathering it, beside the update of the parameters, so that no step begins with waiting for its images.
// Before an epoch the host writes order and starts, sets step to 0, and launches this kernel for the first minibatch.
//
// After the last minibatch it is one more that is empty, so starts has an element more for it. A shard may be smaller
// than n, or empty. The rows of x that are left get zeros, and the label 0.
//
// Macros: P, pixels of an image; HALF_OUT of half.cuh, for x. Grid: n, an image a block. Block: 256.

#include "half.cuh"

extern "C" __global__ void __launch_bounds__(256) gather(
    const unsigned char* images, const unsigned char* labels, const int* order, const int* starts, const int* step,
    float* x, int* y, int* count, int n)
{
    int i = blockIdx.x, start = starts[step[0]], size = min(starts[step[0] + 1] - start, n);
    bool there = i < size;
    int image = there ? order[start + i] : 0;
    for (int p = threadIdx.x; p < P; p += blockDim.x)
        x[i * P + p] = there ? OUT_OF(images[(long long)image * P + p] / 255.0f) : 0.0f;
    if (threadIdx.x == 0) y[i] = there ? labels[image] : 0;
    if (threadIdx.x == 0 && i == 0) count[0] = size;
}
