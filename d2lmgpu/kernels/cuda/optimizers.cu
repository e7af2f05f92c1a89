// Momentum (Polyak 1964) and Adam (Kingma and Ba 2015) over all parameters at once, as in networks/optimizers.py; SGD is sgd.cu.
//
//   param, grad, velocity, mean, square (n,) float32: flat buffers
//   rates, sizes float32, step (1,) int32: rates[step[0]] is learning rate / size of the full batch, sizes[step[0]] the size
//   scale (1,) float32, overflow (1,) int32: those of mixed_precision.cu, where gradients are not scaled 1 and 0
//   taken (1,) int32: steps that Adam has taken before; count_step counts this one, unless it was left out
//
// All that changes from step to step is in device memory, so that a captured graph can do every step. The kernels wait
// for memory, not for arithmetic.
//
// No macros. Grid: any number of blocks, for count_step 1. Block: 256, for count_step 1.

#define FOR_EACH(i, n) for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)

extern "C" __global__ void __launch_bounds__(256) momentum(
    float* param, const float* grad, float* velocity, const float* rates, const float* sizes, const int* step,
    const float* scale, const int* overflow, int n)
{
    if (overflow[0]) return;
    float size = sizes[step[0]], lr = rates[step[0]] * size, to_mean = 1.0f / (size * scale[0]);
    FOR_EACH(i, n) {
        float v = 0.9f * velocity[i] + grad[i] * to_mean;
        velocity[i] = v;
        param[i] -= lr * v;
    }
}

extern "C" __global__ void __launch_bounds__(256) adam(
    float* param, const float* grad, float* mean, float* square, const float* rates, const float* sizes,
    const int* step, const float* scale, const int* overflow, const int* taken, int n)
{
    if (overflow[0]) return;
    float size = sizes[step[0]], lr = rates[step[0]] * size, to_mean = 1.0f / (size * scale[0]);
    // 1 - beta^t for beta = 0.9 and 0.999 by way of logarithms: the difference itself would cancel digits while t is small
    float t = taken[0] + 1;
    float rate = lr / -expm1f(t * -0.10536051565782628f), correction = 1.0f / -expm1f(t * -0.0010005003335835335f);
    FOR_EACH(i, n) {
        float g = grad[i] * to_mean;
        float m = 0.9f * mean[i] + 0.1f * g, v = 0.999f * square[i] + 0.001f * g * g;
        mean[i] = m;
        square[i] = v;
        param[i] -= rate * m / (sqrtf(v * correction) + 1e-8f);
    }
}

extern "C" __global__ void count_step(int* taken, const int* overflow)
{
    if (!overflow[0]) taken[0] += 1;
}
