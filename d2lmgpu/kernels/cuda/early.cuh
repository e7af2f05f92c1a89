// Kernels that begin before the one that they follow in their stream has ended, from compute capability 9.0 on.
//
// Between the end of a kernel and the first instruction of the next pass one or two microseconds in which nothing is
// computed. A kernel that is launched early (early.py) has its blocks in place by then. It must touch nothing that
// others may still be writing or reading: so the first statement of each kernel in a file that includes this one is
// `wait_for_previous`. It lets the next kernel's blocks come, once all of its own have begun, and then waits until the
// kernel before has ended and all that it wrote can be read. In a kernel that is launched as usual it does nothing.
//
// No argument may be `const ... __restrict__`: that promises that memory stays as it is from the kernel's first
// instruction on, and the compiler would read it before the wait.
//
// Source: CUDA Programming Guide, "Programmatic Dependent Launch and Synchronization"; PTX ISA, griddepcontrol.

static __device__ __forceinline__ void wait_for_previous()
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents; griddepcontrol.wait;" ::: "memory");
#endif
}
