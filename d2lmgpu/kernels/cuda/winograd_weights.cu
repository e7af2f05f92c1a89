// The kernels at the points of Winograd's method, once a step: winograd.cuh has the method.
//
//   weight (O, C, KH, KW) -> U[o,c] = G weight[o,c] G^T at POINTS points, stored twice, each time in the order in which
//   the blocks that multiply read it, and with zeros for channels that fill up the last part:
//     u       (parts of O, C, OP, POINTS)  for winograd_forward.cu, OP output channels a part
//     u_back  (parts of C, O, CP, POINTS)  for winograd_input_grad.cu, CP input channels a part; not with BACK 0
//
// One thread a row of one kernel's points; neighbouring threads write neighbouring rows.
// Macros: those of winograd.cuh; OP CP BACK; HALF_WEIGHT of half.cuh.

#include "half.cuh"
#include "winograd.cuh"

#define O_UP (CEIL_DIV(O, OP) * OP)
#define C_UP (BACK ? CEIL_DIV(C, CP) * CP : C)

extern "C" __global__ void __launch_bounds__(256) winograd_weights(const float* weight, float* u, float* u_back)
{
    int index = blockIdx.x * blockDim.x + threadIdx.x;
    int i = index % TH, c = index / TH % C_UP, o = index / TH / C_UP;
    if (o >= O_UP) return;
    float taps[KH][KW], rows[TH][KW], mine[KW], values[TW];
#pragma unroll
    for (int k = 0; k < KH * KW; ++k)
        taps[k / KW][k % KW] = o < O && c < C ? WEIGHT_OF(weight[(o * C + c) * KH * KW + k]) : 0.0f;
#pragma unroll
    for (int b = 0; b < KW; ++b) {
        by_rows<GH, KW, KW>(&taps[0][b], &rows[0][b]);
        mine[b] = rows[0][b];
#pragma unroll
        for (int row = 1; row < TH; ++row) mine[b] = i == row ? rows[row][b] : mine[b];
    }
    by_rows<GW, 1, 1>(mine, values);
    float* to = u + ((o / OP * C + c) * OP + o % OP) * POINTS + i * TW;
    float* back = u_back + ((c / CP * O + o) * CP + c % CP) * POINTS + i * TW;
#pragma unroll
    for (int j = 0; j < TW; ++j) {
        if (c < C) to[j] = values[j];
        if (BACK && o < O) back[j] = values[j];
    }
}
