// Copies of four bytes from global to shared memory that nobody waits for, from compute capability 8.0 on; before that,
// ordinary ones. `address` of an array, `copy` to its element i: a zero if it is not `there`, and then nothing is read.
// `end_of_group` after some of them; `wait_for_groups<n>` waits until all but the last n groups of this thread are done.
// __syncthreads() is still to come before others read.
//
// Without __CUDACC__ the tests' shim has functions of the same names, which let copies arrive as late as they may.

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
typedef unsigned Shared;  // in bytes
typedef char Unit;
static __device__ __forceinline__ Shared address(float* shared) { return (unsigned)__cvta_generic_to_shared(shared); }
static __device__ __forceinline__ void copy(Shared to, int i, const float* from, bool there)
{
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;"
                 ::"r"(to + i * 4), "l"(from), "r"(there ? 4 : 0) : "memory");
}
static __device__ __forceinline__ void end_of_group() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int LEFT>
static __device__ __forceinline__ void wait_for_groups()
{
    asm volatile("cp.async.wait_group %0;" ::"n"(LEFT) : "memory");
}
#elif defined(__CUDACC__)
typedef float* Shared;
typedef float Unit;
static __device__ __forceinline__ Shared address(float* shared) { return shared; }
static __device__ __forceinline__ void copy(Shared to, int i, const float* from, bool there)
{
    to[i] = there ? *from : 0.0f;
}
static __device__ __forceinline__ void end_of_group() {}
template <int LEFT>
static __device__ __forceinline__ void wait_for_groups() {}
#endif
