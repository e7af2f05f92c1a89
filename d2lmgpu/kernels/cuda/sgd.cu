// Minibatch stochastic gradient descent over all parameters at once: param -= rate * grad.
//
//   param, grad (n,) float32: flat buffers with all parameters and gradients, each starting at a multiple of 16 bytes
//   rates float32, step (1,) int32: the rate is rates[step[0]], that is learning rate / size of the full batch
//   (step counts the minibatches that were taken, this one included, so rates[0] is for none)
//
// The rates lie in device memory, one for each step of an epoch (or just one, with step 0), because a scalar argument
// would be frozen into a captured graph. Schedules, warm-up, and a last batch that is smaller, cost nothing this way.
//
// No macros. This kernel does next to no arithmetic: it waits for memory, so it moves 16 bytes at a time.
// Grid: any number of blocks. Block: 256.

extern "C" __global__ void __launch_bounds__(256) sgd(
    float* param, const float* grad, const float* rates, const int* step, int n)
{
    float rate = rates[step[0]];
    int thread = blockIdx.x * blockDim.x + threadIdx.x, threads = gridDim.x * blockDim.x;
    float4* param4 = (float4*)param;
    const float4* grad4 = (const float4*)grad;
    for (int i = thread; i < n / 4; i += threads) {
        float4 p = param4[i], g = grad4[i];
        param4[i] = make_float4(p.x - rate * g.x, p.y - rate * g.y, p.z - rate * g.z, p.w - rate * g.w);
    }
    int i = n / 4 * 4 + thread;  // what is left of the last vector
    if (i < n) param[i] -= rate * grad[i];
}
