// Softmax and cross-entropy: the summed loss, the number of right answers, and the gradient of the logits.
//
//   logits (N, CLASSES) float32, labels (N,) int32 in 0..CLASSES-1, count (1,) int32, scale (1,) float32
//   losses[n] = log sum_k exp(logits[n,k]) - logits[n,labels[n]]
//   dlogits[n,k] = scale * (softmax(logits[n])[k] - [k = label])       scale is 1, or that of mixed_precision.cu
//   hits[n] = 1 if the largest logit, the first of equals, is the label's
//
// Only the first count[0] rows are examples. The rest of a batch that is not full have losses, hits and gradients of 0,
// so that nothing after this kernel need know of them. count is in device memory: a captured graph can be replayed for
// a full batch and for the last one.
//
// Where the last layer is dense and has few classes, head.cu does it and this in one kernel.
//
// Macros: CLASSES; HALF_OUT of half.cuh: the loss is that of rounded logits, and dlogits are rounded, too. One warp a row: its 32 lanes share the classes, and meet by shuffles, without shared memory.
// Grid: N / 8 rounded up. Block: 256, that is 8 rows. The sum over rows is a second kernel of one block, because sums
// in a fixed order are the same bits in every run, which atomic additions are not.

#include "half.cuh"

#define LOWEST -3.402823466e38f

extern "C" __global__ void __launch_bounds__(256) softmax_cross_entropy(
    const float* logits, const int* labels, const int* count, const float* scale, float* dlogits, float* losses,
    int* hits, int N)
{
    int n = blockIdx.x * 8 + threadIdx.x / 32, lane = threadIdx.x % 32;
    if (n >= N) return;  // the whole warp
    auto logit = [&](int k) { return OUT_OF(logits[n * CLASSES + k]); };
    float* drow = dlogits + n * CLASSES;
    if (n >= count[0]) {
        for (int k = lane; k < CLASSES; k += 32) drow[k] = 0.0f;
        if (lane == 0) losses[n] = 0.0f, hits[n] = 0;
        return;
    }

    // The largest logit and its place. Less the largest, no exp overflows, and nothing else changes.
    float largest = LOWEST;
    int place = CLASSES;
    for (int k = lane; k < CLASSES; k += 32)
        if (logit(k) > largest || place == CLASSES) largest = logit(k), place = k;
    for (int other = 16; other > 0; other /= 2) {
        float their_largest = __shfl_xor_sync(0xffffffff, largest, other);
        int their_place = __shfl_xor_sync(0xffffffff, place, other);
        if (their_largest > largest || (their_largest == largest && their_place < place))
            largest = their_largest, place = their_place;
    }
    float sum = 0.0f;
    for (int k = lane; k < CLASSES; k += 32) sum += expf(logit(k) - largest);
    for (int other = 16; other > 0; other /= 2) sum += __shfl_xor_sync(0xffffffff, sum, other);

    int label = labels[n];
    float times = scale[0];
    for (int k = lane; k < CLASSES; k += 32)
        drow[k] = OUT_OF(times * (expf(logit(k) - largest) / sum - (k == label ? 1.0f : 0.0f)));
    if (lane == 0) losses[n] = logf(sum) - (logit(label) - largest), hits[n] = place == label;
}

// The books of a step: loss[0] = sum losses and correct[0] = sum hits, which are also added to the epoch's, and step[0],
// the number of minibatches that were taken in the epoch, counts this one. It is the one place where a step is counted:
// what comes before it in a step finds the old number there, and what waits for it the new one. A hit whose loss is not
// a number is none, as in layers/loss.py: a row with NaN has a largest logit only by how comparisons go.
// Grid: 1. Block: 1024.
extern "C" __global__ void __launch_bounds__(1024) softmax_cross_entropy_sum(
    const float* losses, const int* hits, float* loss, int* correct, float* epoch_loss, int* epoch_correct, int* step,
    int N)
{
    __shared__ float loss_s[32];
    __shared__ int hits_s[32];
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    float sum = 0.0f;
    int right = 0;
    for (int n = threadIdx.x; n < N; n += 1024) sum += losses[n], right += losses[n] == losses[n] ? hits[n] : 0;
    for (int other = 16; other > 0; other /= 2) {
        sum += __shfl_xor_sync(0xffffffff, sum, other);
        right += __shfl_xor_sync(0xffffffff, right, other);
    }
    if (lane == 0) loss_s[warp] = sum, hits_s[warp] = right;
    __syncthreads();
    if (warp > 0) return;
    sum = loss_s[lane], right = hits_s[lane];
    for (int other = 16; other > 0; other /= 2) {
        sum += __shfl_xor_sync(0xffffffff, sum, other);
        right += __shfl_xor_sync(0xffffffff, right, other);
    }
    if (lane == 0) {
        loss[0] = sum, correct[0] = right;
        epoch_loss[0] += sum, epoch_correct[0] += right;
        step[0] += 1;
    }
}
