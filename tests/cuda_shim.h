// Lets g++ compile the project's CUDA kernels unchanged and run them on the CPU, to prove what they compute.
//
// The threads of a block are fibers (coroutines with stacks of their own) on one thread of the CPU, and blocks run one
// after another.
// A fiber runs until it meets a barrier. When all fibers wait at the same barrier it opens; if some wait and none can
// go on, or if they wait at different lines, the launch ends with a message instead of hanging.
//
// Shared memory is static memory in a section of its own, filled with NaN before every block, so that reading what
// no thread wrote shows in the results. What this cannot show: races between barriers, speed, and rounding that
// differs between CPU and GPU (fused multiply-add, expf).
#pragma once
#include <setjmp.h>
#include <ucontext.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <type_traits>
#include <vector>

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

static dim3 gridDim, blockDim, blockIdx, threadIdx;
using std::max;
using std::min;

__shared__ __attribute__((used)) char shared_memory_begins_here[1];  // so that the section always exists
extern "C" char __start_cuda_shared[], __stop_cuda_shared[];

namespace cuda_shim {

enum State { NEW, READY, AT_BLOCK_BARRIER, AT_WARP_BARRIER, DONE };
struct Fiber {
    State state;
    int line;  // of the barrier at which it waits
    jmp_buf place;
};

// ucontext gives a fiber its stack. Later switches are long jumps, which unlike swapcontext need no system calls.
static const size_t STACK = 64 * 1024;
static Fiber fibers[1024];
static char* stacks = (char*)malloc(1024 * STACK);
static jmp_buf scheduler;
static int current;
static const std::function<void()>* kernel;
static bool misaligned;
static double exchange[1024];  // what each thread of a block shows to its warp

// Copies of async_copy.cuh that are under way, of each thread, in groups; the last group is still open.
struct Copy { float* to; float value; };
static std::vector<std::vector<Copy>> under_way[1024];

static void wait(State state, int line) {
    Fiber& fiber = fibers[current];
    fiber.state = state, fiber.line = line;
    if (!_setjmp(fiber.place)) _longjmp(scheduler, 1);
}

static void live() {
    for (;;) {
        (*kernel)();
        wait(DONE, 0);  // until the next block
    }
}

static void resume() {
    Fiber& fiber = fibers[current];
    threadIdx = {current % blockDim.x, current / blockDim.x % blockDim.y, current / blockDim.x / blockDim.y};
    if (_setjmp(scheduler)) return;
    if (fiber.state != NEW) _longjmp(fiber.place, 1);
    ucontext_t context;
    getcontext(&context);
    context.uc_stack.ss_sp = stacks + current * STACK;
    context.uc_stack.ss_size = STACK;
    makecontext(&context, live, 0);
    setcontext(&context);
}

// Open every barrier that all its threads have reached: true if one was.
static bool open_barriers(int first, int last, State at) {
    for (int i = first; i < last; ++i)
        if (fibers[i].state != at || fibers[i].line != fibers[first].line) return false;
    for (int i = first; i < last; ++i) fibers[i].state = READY;
    return true;
}

static const char* run_block(int threads) {
    static char message[200];
    misaligned = false;
    memset(__start_cuda_shared, 0xFF, __stop_cuda_shared - __start_cuda_shared);  // NaN, or -1
    for (int i = 0; i < threads; ++i) {
        if (fibers[i].state != NEW) fibers[i].state = READY;
        under_way[i].assign(1, {});
    }
    // Threads take turns upwards or downwards by turns, so that who must wait for another but does not, shows.
    for (unsigned turn = blockIdx.x + blockIdx.y + blockIdx.z;; ++turn) {
        int done = 0, line = 0;
        for (int i = 0; i < threads; ++i) {
            current = turn % 2 ? threads - 1 - i : i;
            if (fibers[current].state <= READY) resume();
            if (fibers[current].state == DONE) done++;
            else line = fibers[current].line;
        }
        if (done == threads) return misaligned ? "a vector is at an address that is no multiple of its size" : nullptr;
        bool opened = open_barriers(0, threads, AT_BLOCK_BARRIER);
        for (int i = 0; i < threads; i += 32) opened |= open_barriers(i, min(i + 32, threads), AT_WARP_BARRIER);
        if (opened) continue;
        snprintf(message, sizeof message,
                 "block (%u, %u, %u): %d of %d threads wait for ever at barriers, one at line %d", blockIdx.x,
                 blockIdx.y, blockIdx.z, threads - done, threads, abs(line));
        for (Fiber& fiber : fibers) fiber.state = NEW;
        return message;
    }
}

// Run a kernel; returns null, or what went wrong.
static const char* launch(const unsigned* grid, const unsigned* block, const std::function<void()>& body) {
    gridDim = {grid[0], grid[1], grid[2]}, blockDim = {block[0], block[1], block[2]}, kernel = &body;
    for (blockIdx.z = 0; blockIdx.z < gridDim.z; ++blockIdx.z)
        for (blockIdx.y = 0; blockIdx.y < gridDim.y; ++blockIdx.y)
            for (blockIdx.x = 0; blockIdx.x < gridDim.x; ++blockIdx.x)
                if (const char* message = run_block(block[0] * block[1] * block[2])) return message;
    return nullptr;
}

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

// g++ -fsanitize=alignment calls this.
extern "C" void __ubsan_handle_type_mismatch_v1(void*, void*) { cuda_shim::misaligned = true; }

#define LANE (cuda_shim::current % 32)
#define __syncthreads() cuda_shim::wait(cuda_shim::AT_BLOCK_BARRIER, __LINE__)
#define __syncwarp() cuda_shim::wait(cuda_shim::AT_WARP_BARRIER, __LINE__)
#define __shfl_sync(mask, value, lane) cuda_shim::from_lane(value, lane, __LINE__)
#define __shfl_xor_sync(mask, value, bits) cuda_shim::from_lane(value, LANE ^ (bits), __LINE__)
#define __shfl_down_sync(mask, value, n) cuda_shim::from_lane(value, LANE + (n) < 32 ? LANE + (n) : LANE, __LINE__)
static inline int __popc(unsigned bits) { return __builtin_popcount(bits); }
template <typename T> static T __ldg(const T* address) { return *address; }

// Every other thread's asynchronous copies arrive at once, those of the others as late as they may: so that who reads too
// early, and who lets a copy overwrite what is still read, shows.
typedef float* Shared;
typedef float Unit;
static inline Shared address(float* shared) { return shared; }
static inline void copy(Shared to, int i, const float* from, bool there) {
    float value = there ? *from : 0.0f;
    if (cuda_shim::current % 2) to[i] = value;
    else cuda_shim::under_way[cuda_shim::current].back().push_back({to + i, value});
}
static inline void end_of_group() { cuda_shim::under_way[cuda_shim::current].emplace_back(); }
template <int LEFT> static void wait_for_groups() {
    auto& groups = cuda_shim::under_way[cuda_shim::current];
    while ((int)groups.size() - 1 > LEFT) {
        for (cuda_shim::Copy& copy : groups.front()) *copy.to = copy.value;
        groups.erase(groups.begin());
    }
}

static inline int atomicAdd(int* address, int value) { return (*address += value) - value; }
static inline int atomicMax(int* address, int value) {
    int before = *address;
    *address = max(before, value);
    return before;
}
