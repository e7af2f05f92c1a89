// Lets g++ compile the project's CUDA kernels unchanged and run them on the CPU, to prove what they compute.
//
// Shared memory is static memory in a section of its own, filled with NaN before every block, so that reading what
// no thread wrote shows in the results. What this cannot show: most races between barriers, speed, and rounding that
// differs between CPU and GPU (fused multiply-add, expf). cuda_shim.cpp has what is declared here.
#pragma once
#include <math.h>
#include <string.h>

#define __global__
#define __device__
#define __host__
#define __shared__ static __attribute__((section("cuda_shared")))
#define __align__(n) __attribute__((aligned(n)))
#define __forceinline__ inline
#define __launch_bounds__(...)

struct dim3 { unsigned x = 1, y = 1, z = 1; };
struct alignas(8) float2 { float x, y; };
struct alignas(16) float4 { float x, y, z, w; };
struct alignas(16) double2 { double x, y; };
struct alignas(16) longlong2 { long long x, y; };
struct alignas(16) uint4 { unsigned x, y, z, w; };
static inline float2 make_float2(float x, float y) { return {x, y}; }
static inline longlong2 make_longlong2(long long x, long long y) { return {x, y}; }
static inline double2 make_double2(double x, double y) { return {x, y}; }
static inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }

extern dim3 gridDim, blockDim, blockIdx, threadIdx;
template <typename T> static inline T max(T a, T b) { return a < b ? b : a; }
template <typename T> static inline T min(T a, T b) { return b < a ? b : a; }

namespace cuda_shim {

enum State { NEW, READY, AT_BLOCK_BARRIER, AT_WARP_BARRIER, DONE };
void wait(State state, int line);

extern int current;  // the number of the thread in its block
extern double exchange[1024];  // what each thread of a block shows to its warp

// Run a kernel, a function that takes the addresses of its arguments; returns null, or what went wrong.
typedef void (*Kernel)(void** arguments);
const char* launch(const unsigned* grid, const unsigned* block, Kernel kernel, void** arguments);

// What lane `lane` of my warp has; all 32 lanes must call it.
template <typename T> static T from_lane(T value, int lane, int line) {
    int me = current;
    exchange[me] = value;
    wait(AT_WARP_BARRIER, line);
    T result = T(exchange[me / 32 * 32 + lane % 32]);
    wait(AT_WARP_BARRIER, -line);
    return result;
}

}  // namespace cuda_shim

#define LANE (cuda_shim::current % 32)
#define __syncthreads() cuda_shim::wait(cuda_shim::AT_BLOCK_BARRIER, __LINE__)
#define __syncwarp() cuda_shim::wait(cuda_shim::AT_WARP_BARRIER, __LINE__)
#define __shfl_sync(mask, value, lane) cuda_shim::from_lane(value, lane, __LINE__)
#define __shfl_xor_sync(mask, value, bits) cuda_shim::from_lane(value, LANE ^ (bits), __LINE__)
#define __shfl_down_sync(mask, value, n) cuda_shim::from_lane(value, LANE + (n) < 32 ? LANE + (n) : LANE, __LINE__)
static inline int __popc(unsigned bits) { return __builtin_popcount(bits); }
template <typename T> static T __ldg(const T* address) { return *address; }

// What async_copy.cuh has for GPUs.
typedef float* Shared;
typedef float Unit;
static inline Shared address(float* shared) { return shared; }
void copy(Shared to, int i, const float* from, bool there);
void end_of_group();
void wait_until_groups_are(int left);
template <int LEFT> static void wait_for_groups() { wait_until_groups_are(LEFT); }

static inline int atomicAdd(int* address, int value) { return (*address += value) - value; }
static inline int atomicMax(int* address, int value) {
    int before = *address;
    *address = max(before, value);
    return before;
}
