// A frame of P zeros around each plane, for convolutions with padding; the zeros are there from the beginning.
//
//   frame:       framed[p][i + P][j + P] = x[p][i][j]      x (planes, H, W), framed (planes, H + 2P, W + 2P) float32
//   frame_grad:  dx[p][i][j] = dframed[p][i + P][j + P]
//
// Macros: H W P. Grid: any number of blocks. Block: 256.

#define FH (H + 2 * P)
#define FW (W + 2 * P)

static __device__ __forceinline__ int framed_place(int i)
{
    return (i / (H * W) * FH + i / W % H + P) * FW + i % W + P;
}

extern "C" __global__ void __launch_bounds__(256) frame(const float* x, float* framed, int planes)
{
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < planes * H * W; i += gridDim.x * blockDim.x)
        framed[framed_place(i)] = x[i];
}

extern "C" __global__ void __launch_bounds__(256) frame_grad(const float* dframed, float* dx, int planes)
{
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < planes * H * W; i += gridDim.x * blockDim.x)
        dx[i] = dframed[framed_place(i)];
}
