// dz (see conv_input_grad.cu) in units of neighbouring channels (mma.cuh): a square of dz from one load of dy and mask.

struct Gradients {
    float g[UNIT];
    unsigned bits[UNIT];
};

// Of the square at `index` of dy and mask and those of the next channels, of which `count` are there.
static __device__ __forceinline__ Gradients load_gradients(
    const float* dy, const unsigned short* mask, int index, int count)
{
    Gradients gradients;
#pragma unroll
    for (int e = 0; e < UNIT; ++e) {
        gradients.g[e] = e < count ? dy[index + e * (PH * PW)] : 0.0f;
        gradients.bits[e] = e < count ? mask[index + e * (PH * PW)] : 0;
        if (!MAX_POOL) gradients.g[e] *= 1.0f / (S * S);
    }
    return gradients;
}

// Pixel z of the square.
static __device__ __forceinline__ uint4 unpool(const Gradients& gradients, int z)
{
    float dz[UNIT];
#pragma unroll
    for (int e = 0; e < UNIT; ++e) dz[e] = gradients.bits[e] >> z & 1 ? gradients.g[e] : 0.0f;
    return unit_of(dz, 1, UNIT);
}
