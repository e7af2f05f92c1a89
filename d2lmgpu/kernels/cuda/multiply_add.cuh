// Products of the factors of factors.cuh in float32.
//
// A thread has 4 x 4 results. For four steps of the sum it loads eight vectors from shared memory and multiplies 64 times.

struct Sums {
    static const int ROWS = TM / 4, COLUMNS = TN / 4, PARTS = THREADS / (ROWS * COLUMNS);
    float sum[4][4] = {};

    static __device__ __forceinline__ int part() { return threadIdx.x / (ROWS * COLUMNS); }
    static __device__ __forceinline__ int row() { return threadIdx.x / COLUMNS % ROWS; }
    static __device__ __forceinline__ int column() { return threadIdx.x % COLUMNS; }

    // The e-th of the four elements across the sum that belong to a row or column of threads. Of a factor that lies along
    // the sum they are far apart, for neighbouring threads to read from different banks.
    template <class F>
    static __device__ __forceinline__ int mine(int thread, int e)
    {
        return F::ALONG_SUM ? thread + e * (F::SIZE / 4) : thread * 4 + e;
    }

    // Those of four steps, as in[k][e]: four vectors.
    template <class F>
    static __device__ __forceinline__ void load(const float* shared, int thread, int k, float in[4][4])
    {
#pragma unroll
        for (int v = 0; v < 4; ++v) {
            int at = F::ALONG_SUM ? F::place(mine<F>(thread, v), k) : F::place(mine<F>(thread, 0), k + v);
            float4 four = *(const float4*)(shared + at);
            float values[4] = {four.x, four.y, four.z, four.w};
#pragma unroll
            for (int u = 0; u < 4; ++u) (F::ALONG_SUM ? in[u][v] : in[v][u]) = values[u];
        }
    }

    template <class A, class B>
    __device__ __forceinline__ void add(const float* a, const float* b)
    {
#pragma unroll
        for (int step = 0; step < CHUNK; step += 4 * PARTS) {
            float in_a[4][4], in_b[4][4];
            load<A>(a, row(), step + part() * 4, in_a);
            load<B>(b, column(), step + part() * 4, in_b);
#pragma unroll
            for (int k = 0; k < 4; ++k)
#pragma unroll
                for (int i = 0; i < 4; ++i)
#pragma unroll
                    for (int j = 0; j < 4; ++j) sum[i][j] += in_a[k][i] * in_b[k][j];
        }
    }

    template <class A, class B>
    __device__ __forceinline__ void leave(float* shared) const
    {
#pragma unroll
        for (int i = 0; i < 4; ++i)
#pragma unroll
            for (int j = 0; j < 4; ++j)
                shared[(part() * TM + mine<A>(row(), i)) * TN + mine<B>(column(), j)] = sum[i][j];
    }
};
