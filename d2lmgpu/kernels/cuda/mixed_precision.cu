// What training with 16-bit products needs besides them (Micikevicius et al. 2018, "Mixed Precision Training").
//
// Gradients are often smaller than the smallest float16. So the gradient of the loss is multiplied by a large `scale`
// where it is made (head.cu or softmax_cross_entropy.cu), and all gradients come out that much larger. If one becomes
// infinite, the step is skipped and the scale halved; after INTERVAL good steps it is doubled. The parameters themselves
// stay float32.
//
//   check_finite     overflow = 1 if any gradient is not finite     after the gradients are summed over the devices
//   scaled_sgd       param -= rate / scale * grad, unless overflow
//   update_scale     adapts the scale, and sets overflow to 0       the last of the step
//
// scale (1,) float32, overflow (1,) int32 and good_steps (1,) int32 are in device memory: the host need not look at
// them, and a captured graph decides anew in each replay. All devices see the same sums, so they decide the same.
//
// Macro: INTERVAL, a few thousand. Grid: any number of blocks; block 256. update_scale: grid 1, block 1.

#define FOR_EACH(i, n) for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)

// x - x is 0 for every number, and not a number for the others. All threads that write, write the same.
extern "C" __global__ void __launch_bounds__(256) check_finite(const float* grad, int* overflow, int n)
{
    FOR_EACH(i, n) if (!(grad[i] - grad[i] == 0.0f)) overflow[0] = 1;
}

extern "C" __global__ void __launch_bounds__(256) scaled_sgd(
    float* param, const float* grad, const float* rates, const int* step, const float* scale, const int* overflow,
    int n)
{
    if (overflow[0]) return;
    float rate = rates[step[0]] / scale[0];
    FOR_EACH(i, n) param[i] -= rate * grad[i];
}

extern "C" __global__ void update_scale(float* scale, int* overflow, int* good_steps)
{
    good_steps[0] = overflow[0] ? 0 : good_steps[0] + 1;
    if (overflow[0]) scale[0] = scale[0] > 1.0f ? scale[0] * 0.5f : 1.0f;
    if (good_steps[0] == INTERVAL) {
        if (scale[0] < 16777216.0f) scale[0] *= 2.0f;
        good_steps[0] = 0;
    }
    overflow[0] = 0;
}
