// Exact sums over examples (exact.py): what was computed of each granule is rounded to whole units once, and then added
// as a whole number, which no order of additions changes.
//
//   add_gradients  total[i] += sum over granules of term[i] / scale, in units: integers
//   add_losses     the books: sums (2,) of losses and right answers, also added to the epoch's, and step[0] counts
//   add_units      total[i] = sum over granules of term[i], whole units as doubles, which hold them without rounding
//   note_unfit     which was the first step with something that did not fit
//
// A term whose size is not below `limit` could make a sum too large for its type, or is no number: then unfit[0] becomes
// `code`, which says what it was, the largest code of all. Who updates parameters asks unfit[0] before.
//
//   scale (1,) float32: by what gradients were multiplied in mixed precision, a power of two, and so were terms and limit
//   terms (granules, n), total (n,)
//
// No macros. A thread has an i and adds its few granules: all wait for memory, which they read once.
// Grid: n / 256 rounded up, 1 for add_losses and note_unfit. Block: 256, for add_losses 32: lanes share the granules.

static __device__ __forceinline__ bool fits(double term, double limit, int* unfit, int code)
{
    if (fabs(term) < limit) return true;  // not so if it is no number
    atomicMax(unfit, code);
    return false;
}

extern "C" __global__ void __launch_bounds__(256) add_gradients(
    const float* terms, long long* total, const float* scale, int* unfit, double unit, double limit, int code,
    int granules, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    double times = 1.0 / (unit * scale[0]), most = limit * scale[0];
    long long sum = 0;
    for (const float* row = terms; granules > 0; --granules, row += n)
        if (fits(row[i], most, unfit, code)) sum += llrint(row[i] * times);
    total[i] += sum;
}

extern "C" __global__ void __launch_bounds__(32) add_losses(
    const float* losses, const int* hits, double* sums, double* epoch_loss, int* epoch_correct, int* step, int* unfit,
    double unit, double limit, int code, int granules)
{
    double sum = 0.0;
    int right = 0;
    for (int j = threadIdx.x; j < granules; j += 32) {
        fits(losses[j], limit, unfit, code);
        sum += rint(losses[j] / unit) * unit, right += hits[j];
    }
    for (int other = 16; other > 0; other /= 2) {
        sum += __shfl_xor_sync(0xffffffff, sum, other);
        right += __shfl_xor_sync(0xffffffff, right, other);
    }
    if (threadIdx.x) return;
    sums[0] = sum, sums[1] = right;
    epoch_loss[0] += sum, epoch_correct[0] += right;
    step[0] += 1;
}

extern "C" __global__ void __launch_bounds__(256) add_units(
    const double* terms, double* total, const float* scale, int* unfit, double unit, double limit, int code,
    int granules, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    unit *= scale[0], limit *= scale[0];
    double sum = 0.0;
    for (const double* row = terms; granules > 0; --granules, row += n) {
        fits(row[i], limit, unfit, code);
        sum += rint(row[i] / unit) * unit;
    }
    total[i] = sum;
}

// unfit becomes 1: so the sum over devices, which each then has, stays small while steps with it follow.
extern "C" __global__ void __launch_bounds__(256) note_unfit(int* unfit, const int* step, int* first)
{
    if (threadIdx.x || !unfit[0]) return;
    if (!first[0]) first[0] = unfit[0], first[1] = step[0];
    unfit[0] = 1;
}
