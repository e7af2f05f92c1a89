// What follows a convolution's output z: bias is added already, ReLU and pooling of S x S are still to be done.
//
// Macros: S; MAX_POOL and RELU 0 or 1; HALF_OUT of half.cuh, for y. What the bits of a mask mean is told in conv_forward.cu.

#include "half.cuh"

// One square z -> its y, and its mask. What is not a number stays so, to be seen in the loss.
static __device__ __forceinline__ float pool(const float z[S * S], unsigned short* mask)
{
    unsigned bits = 0;
    float y = MAX_POOL ? z[0] : 0.0f;
    int first = 0;
#pragma unroll
    for (int q = 0; q < S * S; ++q) {
        if (MAX_POOL) {
            if (z[q] > y || z[q] != z[q]) { y = z[q]; first = q; }
        } else {
            y += RELU && z[q] <= 0.0f ? 0.0f : z[q];
            if (!RELU || z[q] > 0.0f) bits |= 1u << q;
        }
    }
    if (MAX_POOL) {
        if (!RELU || y > 0.0f) bits = 1u << first;
        if (RELU && y <= 0.0f) y = 0.0f;
    } else {
        y *= 1.0f / (S * S);
    }
    *mask = (unsigned short)bits;
    return OUT_OF(y);
}
