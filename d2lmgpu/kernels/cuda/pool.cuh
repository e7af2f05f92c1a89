// A square of S x S numbers z, for a kernel that pools what it has just computed.
//
// Macros: S = 1 to 4; MAX_POOL and RELU 0 or 1. Bit q of the mask says whether a gradient passes back to z[q]: with
// mean, where z > 0 (everywhere without ReLU); with maximum, to the first of the largest, if ReLU lets it.

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
    return y;
}
