// Pieces of a radix sort: bit histograms, a scan with padding against bank conflicts, scattering.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <iostream>
#include <memory>
#include <random>
#include <stdexcept>
#include <vector>

#define NUM_BANKS 32
#define LOG_NUM_BANKS 5
#ifdef ZERO_BANK_CONFLICTS
#define CONFLICT_FREE_OFFSET(n) ((n) >> NUM_BANKS + (n) >> (2 * LOG_NUM_BANKS))
#else
#define CONFLICT_FREE_OFFSET(n) ((n) >> LOG_NUM_BANKS)
#endif
#define MAX_BLOCK_SZ 128

namespace sorting {

inline void throw_on(cudaError_t status, const char *what) {
  if (status != cudaSuccess) throw std::runtime_error(std::string(what) + ": " + cudaGetErrorString(status));
}

template <typename T>
class device_buffer {
 public:
  explicit device_buffer(std::size_t n) : size_(n) { throw_on(cudaMalloc(&data_, n * sizeof(T)), "cudaMalloc"); }
  device_buffer(const std::vector<T> &host) : device_buffer(host.size()) {
    throw_on(cudaMemcpy(data_, host.data(), size_ * sizeof(T), cudaMemcpyHostToDevice), "copy");
  }
  device_buffer(const device_buffer &) = delete;
  ~device_buffer() noexcept { cudaFree(data_); }
  T *get() const { return data_; }
  std::size_t size() const { return size_; }
  std::vector<T> host() const {
    std::vector<T> out(size_);
    throw_on(cudaMemcpy(out.data(), data_, size_ * sizeof(T), cudaMemcpyDefault), "copy");
    return out;
  }

 private:
  T *data_ = nullptr;
  std::size_t size_;
};

__global__ void gpu_radix_sort_local(unsigned int *d_out_sorted, unsigned int *d_prefix_sums, unsigned int *d_block_sums,
                                     unsigned int input_shift_width, unsigned int *d_in, unsigned int d_in_len,
                                     unsigned int max_elems_per_block) {
  // need shared memory array for:
  // - block's share of the input data (local sort will be put here too)
  // - mask outputs
  // - scanned mask outputs
  // - merged scaned mask outputs ("local prefix sum")
  // - local sums of scanned mask outputs
  // - scanned local sums of scanned mask outputs

  // for all radix combinations:
  //  build mask output for current radix combination
  //  scan mask ouput
  //  store needed value from current prefix sum array to merged prefix sum array
  //  store total sum of mask output (obtained from scan) to global block sum array
  extern __shared__ unsigned int shmem[];
  unsigned int *s_data = shmem;
  // s_mask_out[] will be scanned in place
  unsigned int s_mask_out_len = max_elems_per_block + 1;
  unsigned int *s_mask_out = &s_data[max_elems_per_block];
  unsigned int *s_merged_scan_mask_out = &s_mask_out[s_mask_out_len];
  unsigned int *s_mask_out_sums = &s_merged_scan_mask_out[max_elems_per_block];
  unsigned int *s_scan_mask_out_sums = &s_mask_out_sums[4];

  unsigned int thid = threadIdx.x;

  // Copy block's portion of global input data to shared memory
  unsigned int cpy_idx = max_elems_per_block * blockIdx.x + thid;
  if (cpy_idx < d_in_len)
    s_data[thid] = d_in[cpy_idx];
  else
    s_data[thid] = 0;

  __syncthreads();

  // To extract the correct 2 bits, we first shift the number
  //  to the right until the correct 2 bits are in the 2 LSBs,
  //  then mask on the number with 11 (3) to remove the bits
  //  on the left
  unsigned int t_data = s_data[thid];
  unsigned int t_2bit_extract = (t_data >> input_shift_width) & 3;

  for (unsigned int i = 0; i < 4; ++i) {
    // Zero out s_mask_out
    s_mask_out[thid] = 0;
    if (thid == 0) s_mask_out[s_mask_out_len - 1] = 0;

    __syncthreads();

    // build bit mask output
    bool val_equals_i = false;
    if (cpy_idx < d_in_len) {
      val_equals_i = t_2bit_extract == i;
      s_mask_out[thid] = val_equals_i;
    }
    __syncthreads();

    // Scan mask outputs (Hillis-Steele)
    int partner = 0;
    unsigned int sum = 0;
    unsigned int max_steps = (unsigned int)log2f(max_elems_per_block);
    for (unsigned int d = 0; d < max_steps; d++) {
      partner = thid - (1 << d);
      if (partner >= 0) {
        sum = s_mask_out[thid] + s_mask_out[partner];
      } else {
        sum = s_mask_out[thid];
      }
      __syncthreads();
      s_mask_out[thid] = sum;
      __syncthreads();
    }

    // Shift elements to produce the same effect as exclusive scan
    unsigned int cpy_val = 0;
    cpy_val = s_mask_out[thid];
    __syncthreads();
    s_mask_out[thid + 1] = cpy_val;
    __syncthreads();

    if (thid == 0) {
      // Zero out first element to produce the same effect as exclusive scan
      s_mask_out[0] = 0;
      unsigned int total_sum = s_mask_out[s_mask_out_len - 1];
      s_mask_out_sums[i] = total_sum;
      d_block_sums[i * gridDim.x + blockIdx.x] = total_sum;
    }
    __syncthreads();

    if (val_equals_i && (cpy_idx < d_in_len)) {
      s_merged_scan_mask_out[thid] = s_mask_out[thid];
    }

    __syncthreads();
  }

  // Scan mask output sums
  // Just do a naive scan since the array is really small
  if (thid == 0) {
    unsigned int run_sum = 0;
    for (unsigned int i = 0; i < 4; ++i) {
      s_scan_mask_out_sums[i] = run_sum;
      run_sum += s_mask_out_sums[i];
    }
  }

  __syncthreads();

  if (cpy_idx < d_in_len) {
    // Calculate the new indices of the input elements for sorting
    unsigned int t_prefix_sum = s_merged_scan_mask_out[thid];
    unsigned int new_pos = t_prefix_sum + s_scan_mask_out_sums[t_2bit_extract];

    __syncthreads();

    // Shuffle the block's input elements to actually sort them
    // Do this step for greater global memory transfer coalescing
    //  in next step
    s_data[new_pos] = t_data;
    s_merged_scan_mask_out[new_pos] = t_prefix_sum;

    __syncthreads();

    // Copy block - wise prefix sum results to global memory
    // Copy block-wise sort results to global
    d_prefix_sums[cpy_idx] = s_merged_scan_mask_out[thid];
    d_out_sorted[cpy_idx] = s_data[thid];
  }
}

__global__ void gpu_glbl_shuffle(unsigned int *d_out, unsigned int *d_in, unsigned int *d_scan_block_sums,
                                 unsigned int *d_prefix_sums, unsigned int input_shift_width, unsigned int d_in_len,
                                 unsigned int max_elems_per_block) {
  // get d = digit
  // get n = blockIdx
  // get m = local prefix sum array value
  // calculate global position = P_d[n] + m
  // copy input element to final position in d_out
  unsigned int thid = threadIdx.x;
  unsigned int cpy_idx = max_elems_per_block * blockIdx.x + thid;

  if (cpy_idx < d_in_len) {
    unsigned int t_data = d_in[cpy_idx];
    unsigned int t_2bit_extract = (t_data >> input_shift_width) & 3;
    unsigned int t_prefix_sum = d_prefix_sums[cpy_idx];
    unsigned int data_glbl_pos = d_scan_block_sums[t_2bit_extract * gridDim.x + blockIdx.x] + t_prefix_sum;
    __syncthreads();
    d_out[data_glbl_pos] = t_data;
  }
}

// Work-efficient scan of one block, with padding
__global__ void prescan(unsigned int *const d_out, const unsigned int *const d_in, const size_t len) {
  extern __shared__ unsigned int s_out[];
  const int thid = threadIdx.x;
  int ai = thid, bi = thid + (int)(len / 2);
  int bankOffsetA = CONFLICT_FREE_OFFSET(ai);
  int bankOffsetB = CONFLICT_FREE_OFFSET(bi);
  s_out[ai + bankOffsetA] = d_in[ai];
  s_out[bi + bankOffsetB] = d_in[bi];
  int offset = 1;
  for (int d = len >> 1; d > 0; d >>= 1) {
    __syncthreads();
    if (thid < d) {
      int ai = offset * ((thid << 1) + 1) - 1;
      int bi = offset * ((thid << 1) + 2) - 1;
      ai += CONFLICT_FREE_OFFSET(ai);
      bi += CONFLICT_FREE_OFFSET(bi);
      s_out[bi] += s_out[ai];
    }
    offset <<= 1;
  }
  // clear the last element
  if (thid == 0) {
    s_out[len - 1 + CONFLICT_FREE_OFFSET(len - 1)] = 0;
  }
  // Downsweep
  for (int d = 1; d < len; d <<= 1) {
    offset >>= 1;
    __syncthreads();
    if (thid < d) {
      int ai = offset * ((thid << 1) + 1) - 1;
      int bi = offset * ((thid << 1) + 2) - 1;
      ai += CONFLICT_FREE_OFFSET(ai);
      bi += CONFLICT_FREE_OFFSET(bi);
      unsigned int temp = s_out[ai];
      s_out[ai] = s_out[bi];
      s_out[bi] += temp;
    }
  }
  __syncthreads();
  d_out[ai] = s_out[ai + bankOffsetA];
  d_out[bi] = s_out[bi + bankOffsetB];
}

void radix_sort(std::vector<unsigned int> &values) {
  unsigned int block_sz = MAX_BLOCK_SZ, n = values.size(), grid_sz = (n + block_sz - 1) / block_sz;
  auto in = std::make_unique<device_buffer<unsigned int>>(values);
  device_buffer<unsigned int> out(n), prefix(n), sums(4 * grid_sz), scanned(4 * grid_sz);
  unsigned int s_data_len = block_sz, s_mask_out_len = block_sz + 1;
  unsigned int shmem_sz = (s_data_len + s_mask_out_len + block_sz + 4 + 4) * sizeof(unsigned int);
  for (unsigned int shift_width = 0; shift_width <= 30; shift_width += 2) {
    gpu_radix_sort_local<<<grid_sz, block_sz, shmem_sz>>>(out.get(), prefix.get(), sums.get(), shift_width, in->get(), n, block_sz);
    throw_on(cudaPeekAtLastError(), "local");
    prescan<<<1, 2 * grid_sz, sizeof(unsigned int) * (4 * grid_sz + 4 * grid_sz / NUM_BANKS)>>>(scanned.get(), sums.get(), 4 * grid_sz);
    gpu_glbl_shuffle<<<grid_sz, block_sz>>>(in->get(), out.get(), scanned.get(), prefix.get(), shift_width, n, block_sz);
    throw_on(cudaDeviceSynchronize(), "global");
  }
  values = in->host();
}

}  // namespace sorting

int main() try {
  std::mt19937 engine{42};
  std::uniform_int_distribution<unsigned int> any;
  std::vector<unsigned int> values(64 * MAX_BLOCK_SZ);
  std::generate(values.begin(), values.end(), [&] { return any(engine); });
  auto wanted = values;
  std::sort(wanted.begin(), wanted.end());
  sorting::radix_sort(values);
  const bool good = values == wanted;
  std::cout << (good ? "PASSED" : "FAILED") << std::endl;
  return good ? EXIT_SUCCESS : EXIT_FAILURE;
} catch (const std::exception &e) {
  std::cerr << e.what() << '\n';
  return 2;
}
