// What cuda_shim.h and cuda_shim_mma.h declare; compiled once, and linked to every kernel.
//
// The threads of a block are fibers (coroutines with stacks of their own) on one thread of the CPU, and blocks run one
// after another.
// A fiber runs until it meets a barrier. When all fibers wait at the same barrier it opens; if some wait and none can
// go on, or if they wait at different lines, the launch ends with a message instead of hanging.
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <ucontext.h>

#include <vector>

#include "cuda_shim.h"
#include "cuda_shim_mma.h"

dim3 gridDim, blockDim, blockIdx, threadIdx;

__shared__ __attribute__((used)) char shared_memory_begins_here[1];  // so that the section always exists
extern "C" char __start_cuda_shared[], __stop_cuda_shared[];

namespace cuda_shim {

double exchange[1024];

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
int current;
static Kernel kernel;
static void** arguments;
static const char* mistake;  // of the block; null: none

// Copies of async_copy.cuh that are under way, of each thread, in groups; the last group is still open.
struct Copy { float* to; const float* from; float value; };
static std::vector<std::vector<Copy>> under_way[1024];

void wait(State state, int line) {
    Fiber& fiber = fibers[current];
    fiber.state = state, fiber.line = line;
    if (!_setjmp(fiber.place)) _longjmp(scheduler, 1);
}

static void live() {
    for (;;) {
        kernel(arguments);
        for (auto& group : under_way[current])
            if (!group.empty()) mistake = "asynchronous copies for which nobody waits";
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

// Run the threads of a warp, until they end or wait for other warps.
static void run_warp(int first, int last, bool downwards) {
    do {
        for (int i = first; i < last; ++i) {
            current = downwards ? first + last - 1 - i : i;
            if (fibers[current].state <= READY) resume();
        }
    } while (open_barriers(first, last, AT_WARP_BARRIER));
}

static const char* run_block(int threads) {
    static char message[200];
    mistake = nullptr;
    memset(__start_cuda_shared, 0xFF, __stop_cuda_shared - __start_cuda_shared);  // NaN, or -1
    for (int i = 0; i < threads; ++i) {
        if (fibers[i].state != NEW) fibers[i].state = READY;
        under_way[i].assign(1, {});
    }
    // Warps go as far as they can, one after another, upwards or downwards by turns: who fails to wait, shows.
    int warps = (threads + 31) / 32;
    for (unsigned turn = blockIdx.x + blockIdx.y + blockIdx.z;; ++turn) {
        for (int i = 0; i < warps; ++i) {
            int warp = turn % 2 ? warps - 1 - i : i;
            run_warp(warp * 32, min(warp * 32 + 32, threads), turn % 2);
        }
        int done = 0, line = 0;
        for (int i = 0; i < threads; ++i) {
            if (fibers[i].state == DONE) done++;
            else line = fibers[i].line;
        }
        if (done == threads) return mistake;
        if (open_barriers(0, threads, AT_BLOCK_BARRIER)) continue;
        snprintf(message, sizeof message,
                 "block (%u, %u, %u): %d of %d threads wait for ever at barriers, one at line %d", blockIdx.x,
                 blockIdx.y, blockIdx.z, threads - done, threads, abs(line));
        for (Fiber& fiber : fibers) fiber.state = NEW;
        return message;
    }
}

const char* launch(const unsigned* grid, const unsigned* block, Kernel body, void** args) {
    gridDim = {grid[0], grid[1], grid[2]}, blockDim = {block[0], block[1], block[2]}, kernel = body, arguments = args;
    for (blockIdx.z = 0; blockIdx.z < gridDim.z; ++blockIdx.z)
        for (blockIdx.y = 0; blockIdx.y < gridDim.y; ++blockIdx.y)
            for (blockIdx.x = 0; blockIdx.x < gridDim.x; ++blockIdx.x)
                if (const char* message = run_block(block[0] * block[1] * block[2])) return message;
    return nullptr;
}

struct Shown { unsigned a[4], b[2]; };
static Shown shown[1024];  // what each thread shows to its warp in the functions below

static const Shown& lane_shows(int lane) { return shown[current / 32 * 32 + lane]; }

// Show to the warp, look at what it shows, and wait until all have looked.
template <class Look> static void together(const Shown& mine, int line, Look look) {
    shown[current] = mine;
    wait(AT_WARP_BARRIER, line);
    look();
    wait(AT_WARP_BARRIER, -line);
}

// d += a b: number k of a row is in word k / 2 of eight, and there in a half.
static void mma(float* d, const unsigned* a, const unsigned* b, int line) {
    auto value = [](unsigned bits, int part) { return __half2float({(unsigned short)(bits >> 16 * part)}); };
    together({{a[0], a[1], a[2], a[3]}, {b[0], b[1]}}, line, [&] {
        int g = current % 32 / 4, t = current % 4;
        for (int e = 0; e < 4; ++e) {
            int row = g + e / 2 * 8, column = 2 * t + e % 2;
            for (int k = 0; k < 16; ++k) {
                int word = k / 2, part = k % 2;
                unsigned from_a = lane_shows(row % 8 * 4 + word % 4).a[word / 4 * 2 + row / 8];
                unsigned from_b = lane_shows(column * 4 + word % 4).b[word / 4];
                d[e] += value(from_a, part) * value(from_b, part);
            }
        }
    });
}

}  // namespace cuda_shim

// g++ -fsanitize=alignment calls this.
extern "C" void __ubsan_handle_type_mismatch_v1(void*, void*) {
    cuda_shim::mistake = "a vector is at an address that is no multiple of its size";
}

// A copy arrives when its thread waits for it; until then there is NaN, as it may have come at any time. So who reads
// too early shows, who copies over what is still read, and who changes what is being copied.
void copy(Shared to, int i, const float* from, bool there) {
    static const float zero = 0.0f;
    if (!there) from = &zero;
    cuda_shim::under_way[cuda_shim::current].back().push_back({to + i, from, *from});
    to[i] = NAN;
}
void end_of_group() { cuda_shim::under_way[cuda_shim::current].emplace_back(); }
void wait_until_groups_are(int left) {
    auto& groups = cuda_shim::under_way[cuda_shim::current];
    while ((int)groups.size() - 1 > left) {
        for (cuda_shim::Copy& copy : groups.front()) *copy.to = *copy.from == copy.value ? copy.value : NAN;
        groups.erase(groups.begin());
    }
}

void multiply(float* d, const unsigned* a, const unsigned* b) { cuda_shim::mma(d, a, b, __LINE__); }
