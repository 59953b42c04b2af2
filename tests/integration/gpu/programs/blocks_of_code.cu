// Code as it stands in teaching material: macros around barriers, early returns, while loops, shared
// structs, device classes with methods, default arguments, and conditions on the preprocessor.
#include "cuda_runtime.h"
#include "device_launch_parameters.h"

#include <stdio.h>
#include <cmath>

#ifndef BLOCK
#define BLOCK 64
#endif
#define SYNC __syncthreads()
#define HANDLE_ERROR( err ) (HandleError( err, __FILE__, __LINE__ ))
static void HandleError( cudaError_t err, const char *file, int line ) {
    if (err != cudaSuccess) {
        printf( "%s in %s at line %d\n", cudaGetErrorString( err ), file, line );
        exit( EXIT_FAILURE );
    }
}

const int threadsPerBlock = 256;
const int N = 33 * 1024;
const int blocksPerGrid = (N + threadsPerBlock - 1) / threadsPerBlock < 32 ? (N + threadsPerBlock - 1) / threadsPerBlock : 32;

__global__ void dot( float *a, float *b, float *c ) {
    __shared__ float cache[threadsPerBlock];
    int tid = threadIdx.x + blockIdx.x * blockDim.x;
    int cacheIndex = threadIdx.x;

    float   temp = 0;
    while (tid < N) {
        temp += a[tid] * b[tid];
        tid += blockDim.x * gridDim.x;
    }
    
    // set the cache values
    cache[cacheIndex] = temp;
    
    // synchronize threads in this block
    __syncthreads();

    // for reductions, threadsPerBlock must be a power of 2
    // because of the following code
    int i = blockDim.x/2;
    while (i != 0) {
        if (cacheIndex < i)
            cache[cacheIndex] += cache[cacheIndex + i];
        __syncthreads();
        i /= 2;
    }

    if (cacheIndex == 0)
        c[blockIdx.x] = cache[0];
}

struct cuComplex {
    float   r;
    float   i;
    __device__ cuComplex( float a, float b ) : r(a), i(b)  {}
    __device__ float magnitude2( void ) {
        return r * r + i * i;
    }
    __device__ cuComplex operator*(const cuComplex& a) {
        return cuComplex(r*a.r - i*a.i, i*a.r + r*a.i);
    }
    __device__ cuComplex operator+(const cuComplex& a) {
        return cuComplex(r+a.r, i+a.i);
    }
};

#define DIM 60
__device__ int julia( int x, int y ) { 
    const float scale = 1.5;
    float jx = scale * (float)(DIM/2 - x)/(DIM/2);
    float jy = scale * (float)(DIM/2 - y)/(DIM/2);

    cuComplex c(-0.8, 0.156);
    cuComplex a(jx, jy);

    int i = 0;
    for (i=0; i<200; i++) {
        a = a * a + c;
        if (a.magnitude2() > 1000)
            return 0;
    }

    return 1;
}

__global__ void kernel( unsigned char *ptr ) {
    // map from blockIdx to pixel position
    int x = blockIdx.x;
    int y = blockIdx.y;
    int offset = x + y * gridDim.x;

    // now calculate the value at that position
    int juliaValue = julia( x, y );
    ptr[offset*4 + 0] = 255 * juliaValue;
    ptr[offset*4 + 1] = 0;
    ptr[offset*4 + 2] = 0;
    ptr[offset*4 + 3] = 255;
}

struct Lock {
    int *mutex;
    Lock( void ) {
        HANDLE_ERROR( cudaMalloc( (void**)&mutex, sizeof(int) ) );
        HANDLE_ERROR( cudaMemset( mutex, 0, sizeof(int) ) );
    }
    ~Lock( void ) {
    }
    __device__ void lock( void ) {
        while( atomicCAS( mutex, 0, 1 ) != 0 );
        __threadfence();
    }
    __device__ void unlock( void ) {
        __threadfence();
        atomicExch( mutex, 0 );
    }
};

__global__ void locked( Lock lock, int *count ) {
    if (threadIdx.x == 0) {
        lock.lock();
        *count = *count + 1;
        lock.unlock();
    }
}

// The tile is a struct; an #ifdef stands in the body; barriers come from a macro.
struct Tile { float v[BLOCK]; int used; };
__global__ void smooth(const float *in, float *out, int n, int rounds = 2) {
    __shared__ Tile tile;
    int t = threadIdx.x, i = blockIdx.x * BLOCK + t;
    tile.v[t] = i < n ? in[i] : 0.f;
    if (t == 0) tile.used = min(BLOCK, n - (int)blockIdx.x * BLOCK);
    SYNC;
    for (int r = 0; r < rounds; ++r) {
#ifdef WIDE
        float left = t > 1 ? tile.v[t - 2] : tile.v[t];
#else
        float left = t > 0 ? tile.v[t - 1] : tile.v[t];
#endif
        float right = t + 1 < tile.used ? tile.v[t + 1] : tile.v[t];
        SYNC;
        tile.v[t] = 0.25f * left + 0.5f * tile.v[t] + 0.25f * right;
        SYNC;
    }
    if (i < n)
        out[i] = tile.v[t];
}

#if defined(__CUDA_ARCH__) && (__CUDA_ARCH__ < 350)
#define LOAD(p) (*(p))
#else
#define LOAD(p) __ldg(p)
#endif

__global__ void heat( float *dst, const float *src, int w, int h ) {
    int x = threadIdx.x + blockIdx.x * blockDim.x;
    int y = threadIdx.y + blockIdx.y * blockDim.y;
    int offset = x + y * blockDim.x * gridDim.x;
    int left = offset - 1;
    int right = offset + 1;
    if (x == 0)   left++;
    if (x == w-1) right--;
    int top = offset - w;
    int bottom = offset + w;
    if (y == 0)   top += w;
    if (y == h-1) bottom -= w;
    dst[offset] = LOAD(&src[offset]) + 0.25f * (src[top] + src[bottom] + src[left] + src[right] - src[offset]*4);
}

// Odd-even sort in one block with a flag that all threads vote on.
__global__ void oddEven(int *a, int n) {
    __shared__ bool swapped;
    int t = threadIdx.x;
    while (true) {
        if (t == 0) swapped = false;
        __syncthreads();
        for (int phase = 0; phase < 2; phase++) {
            int i = 2 * t + phase;
            if (i + 1 < n && a[i] > a[i + 1]) {
                int x = a[i];
                a[i] = a[i + 1];
                a[i + 1] = x;
                swapped = true;
            }
            __syncthreads();
        }
        if (!swapped) break;
        __syncthreads();
    }
}

int main( void ) {
    float   *a, *b, c, *partial_c, *dev_a, *dev_b, *dev_partial_c;
    a = (float*)malloc( N*sizeof(float) );
    b = (float*)malloc( N*sizeof(float) );
    partial_c = (float*)malloc( blocksPerGrid*sizeof(float) );
    HANDLE_ERROR( cudaMalloc( (void**)&dev_a, N*sizeof(float) ) );
    HANDLE_ERROR( cudaMalloc( (void**)&dev_b, N*sizeof(float) ) );
    HANDLE_ERROR( cudaMalloc( (void**)&dev_partial_c, blocksPerGrid*sizeof(float) ) );
    for (int i=0; i<N; i++) {
        a[i] = i;
        b[i] = i*2;
    }
    HANDLE_ERROR( cudaMemcpy( dev_a, a, N*sizeof(float), cudaMemcpyHostToDevice ) );
    HANDLE_ERROR( cudaMemcpy( dev_b, b, N*sizeof(float), cudaMemcpyHostToDevice ) ); 
    dot<<<blocksPerGrid,threadsPerBlock>>>( dev_a, dev_b, dev_partial_c );
    HANDLE_ERROR( cudaMemcpy( partial_c, dev_partial_c, blocksPerGrid*sizeof(float), cudaMemcpyDeviceToHost ) );
    c = 0;
    for (int i=0; i<blocksPerGrid; i++) {
        c += partial_c[i];
    }
    #define sum_squares(x)  (x*(x+1)*(2*x+1)/6)
    printf( "Does GPU value %.6g = %.6g?\n", c, 2 * sum_squares( (float)(N - 1) ) );
    bool good = fabs(c / (2 * sum_squares( (double)(N - 1) )) - 1) < 1e-5;

    unsigned char *image;
    HANDLE_ERROR( cudaMallocManaged( &image, DIM * DIM * 4 ) );
    dim3    grid(DIM,DIM);
    kernel<<<grid,1>>>( image );
    HANDLE_ERROR( cudaDeviceSynchronize() );
    int inside = 0;
    for (int i = 0; i < DIM * DIM; i++) inside += image[4 * i] == 255;
    good = good && inside > 0 && inside < DIM * DIM;

    Lock lock;
    int *count, *sorted;
    HANDLE_ERROR( cudaMallocManaged( &count, sizeof(int) ) );
    *count = 0;
    locked<<<100, 32>>>( lock, count );
    HANDLE_ERROR( cudaDeviceSynchronize() );
    good = good && *count == 100;

    smooth<<<(N + BLOCK - 1) / BLOCK, BLOCK>>>( dev_a, dev_b, N );
    HANDLE_ERROR( cudaMemcpy( b, dev_b, N*sizeof(float), cudaMemcpyDeviceToHost ) );
    good = good && b[10] == 10.0f;
    printf( "%f %d %d\n", b[0], inside, *count );

    float *hot, *cold;
    HANDLE_ERROR( cudaMallocManaged( &hot, 64 * 64 * sizeof(float) ) );
    HANDLE_ERROR( cudaMallocManaged( &cold, 64 * 64 * sizeof(float) ) );
    for (int i = 0; i < 64 * 64; i++) hot[i] = i == 2080 ? 100 : 0;
    heat<<<dim3(4, 4), dim3(16, 16)>>>( cold, hot, 64, 64 );
    HANDLE_ERROR( cudaDeviceSynchronize() );
    good = good && cold[2080] == 0 && cold[2081] == 25 && cold[2016] == 25;

    HANDLE_ERROR( cudaMallocManaged( &sorted, 100 * sizeof(int) ) );
    for (int i = 0; i < 100; i++) sorted[i] = i * 37 % 100;
    oddEven<<<1, 50>>>( sorted, 100 );
    HANDLE_ERROR( cudaDeviceSynchronize() );
    for (int i = 0; i < 100; i++) good = good && sorted[i] == i;

    HANDLE_ERROR( cudaFree( dev_a ) );
    free( a );
    puts( good ? "PASSED" : "FAILED" );
    return !good;
}
