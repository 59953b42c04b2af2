// Two dynamic programmes over a halo: sequence alignment along diagonals, and the cheapest path.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <algorithm>
#include <vector>

#define BLOCK_SIZE 16
#define BSIZE 64
#define HALO 1
#define MIN(a, b) ((a)<=(b) ? (a) : (b))

__device__ __host__ int 
maximum( int a,
		 int b,
		 int c){

int k;
if( a <= b )
k = b;
else 
k = a;

if( k <=c )
return(c);
else
return(k);

}

__global__ void
needle_cuda_shared_1(  int* referrence,
			  int* matrix_cuda, 
			  int cols,
			  int penalty,
			  int i,
			  int block_width) 
{
  int bx = blockIdx.x;
  int tx = threadIdx.x;

  int b_index_x = bx;
  int b_index_y = i - 1 - bx;

  int index   = cols * BLOCK_SIZE * b_index_y + BLOCK_SIZE * b_index_x + tx + ( cols + 1 );
  int index_n   = cols * BLOCK_SIZE * b_index_y + BLOCK_SIZE * b_index_x + tx + ( 1 );
  int index_w   = cols * BLOCK_SIZE * b_index_y + BLOCK_SIZE * b_index_x + ( cols );
  int index_nw =  cols * BLOCK_SIZE * b_index_y + BLOCK_SIZE * b_index_x;

  __shared__  int temp[BLOCK_SIZE+1][BLOCK_SIZE+1];
  __shared__  int ref[BLOCK_SIZE][BLOCK_SIZE];

   if (tx == 0)
		  temp[tx][0] = matrix_cuda[index_nw];

  for ( int ty = 0 ; ty < BLOCK_SIZE ; ty++)
  ref[ty][tx] = referrence[index + cols * ty];

  __syncthreads();

  temp[tx + 1][0] = matrix_cuda[index_w + cols * tx];

  __syncthreads();

  temp[0][tx + 1] = matrix_cuda[index_n];
  
  __syncthreads();
  
  for( int m = 0 ; m < BLOCK_SIZE ; m++){
   
	  if ( tx <= m ){

		  int t_index_x =  tx + 1;
		  int t_index_y =  m - tx + 1;

		  temp[t_index_y][t_index_x] = maximum( temp[t_index_y-1][t_index_x-1] + ref[t_index_y-1][t_index_x-1],
		                                        temp[t_index_y][t_index_x-1]  - penalty, 
												temp[t_index_y-1][t_index_x]  - penalty);

	  }

	  __syncthreads();
  
    }

 for( int m = BLOCK_SIZE - 2 ; m >=0 ; m--){
   
	  if ( tx <= m){

		  int t_index_x =  tx + BLOCK_SIZE - m ;
		  int t_index_y =  BLOCK_SIZE - tx;

		  temp[t_index_y][t_index_x] = maximum( temp[t_index_y-1][t_index_x-1] + ref[t_index_y-1][t_index_x-1],
		                                        temp[t_index_y][t_index_x-1]  - penalty, 
												temp[t_index_y-1][t_index_x]  - penalty);
   
	  }

	  __syncthreads();
  }

  for ( int ty = 0 ; ty < BLOCK_SIZE ; ty++)
  matrix_cuda[index + ty * cols] = temp[ty+1][tx+1];

}

#define IN_RANGE(x, min, max)   ((x)>=(min) && (x)<=(max))

__global__ void dynproc_kernel(
                int iteration, 
                int *gpuWall,
                int *gpuSrc,
                int *gpuResults,
                int cols, 
                int rows,
                int startStep,
                int border)
{

        __shared__ int prev[BSIZE];
        __shared__ int result[BSIZE];

	int bx = blockIdx.x;
	int tx=threadIdx.x;
	
	int small_block_cols = BSIZE-iteration*HALO*2;

        int blkX = small_block_cols*bx-border;
        int blkXmax = blkX+BSIZE-1;
	int xidx = blkX+tx;
       
        int validXmin = (blkX < 0) ? -blkX : 0;
        int validXmax = (blkXmax > cols-1) ? BSIZE-1-(blkXmax-cols+1) : BSIZE-1;

        int W = tx-1;
        int E = tx+1;
        
        W = (W < validXmin) ? validXmin : W;
        E = (E > validXmax) ? validXmax : E;

        bool isValid = IN_RANGE(tx, validXmin, validXmax);

	if(IN_RANGE(xidx, 0, cols-1)){
            prev[tx] = gpuSrc[xidx];
	}
	__syncthreads(); // [Ronny] Added sync to avoid race on prev Aug. 14 2012
        bool computed;
        for (int i=0; i<iteration ; i++){ 
            computed = false;
            if( IN_RANGE(tx, i+1, BSIZE-i-2) &&  \
                  isValid){
                  computed = true;
                  int left = prev[W];
                  int up = prev[tx];
                  int right = prev[E];
                  int shortest = MIN(left, up);
                  shortest = MIN(shortest, right);
                  int index = cols*(startStep+i)+xidx;
                  result[tx] = shortest + gpuWall[index];
	
            }
            __syncthreads();
            if(i==iteration-1)
                break;
            if(computed)	 //Assign the computation range
                prev[tx]= result[tx];
	    __syncthreads(); // [Ronny] Added sync to avoid race on prev Aug. 14 2012
      }

      if (computed){
          gpuResults[xidx]=result[tx];		
      }
}

bool align() {
  int max_rows = 96 + 1, max_cols = 96 + 1, penalty = 10;
  size_t size = max_rows * max_cols;
  std::vector<int> reference(size), items(size), wanted(size);
  for (auto &r : reference) r = rand() % 10 - 4;
  for (int i = 1; i < max_rows; i++) items[i * max_cols] = -i * penalty;
  for (int j = 1; j < max_cols; j++) items[j] = -j * penalty;
  wanted = items;
  for (int i = 1; i < max_rows; i++)
    for (int j = 1; j < max_cols; j++)
      wanted[i * max_cols + j] = maximum(wanted[(i - 1) * max_cols + j - 1] + reference[i * max_cols + j],
                                         wanted[i * max_cols + j - 1] - penalty, wanted[(i - 1) * max_cols + j] - penalty);
  int *d_ref, *d_items;
  cudaMalloc((void **)&d_ref, sizeof(int) * size);
  cudaMalloc((void **)&d_items, sizeof(int) * size);
  cudaMemcpy(d_ref, reference.data(), sizeof(int) * size, cudaMemcpyHostToDevice);
  cudaMemcpy(d_items, items.data(), sizeof(int) * size, cudaMemcpyHostToDevice);
  dim3 dimGrid;
  dim3 dimBlock(BLOCK_SIZE, 1);
  int block_width = (max_cols - 1) / BLOCK_SIZE;
  //process top-left matrix, then the rest, diagonal by diagonal
  for (int i = 1; i <= 2 * block_width - 1; i++) {
    // every diagonal starts at the first column of blocks that is inside
    dimGrid.x = i;
    dimGrid.y = 1;
    if (i > block_width) break;
    needle_cuda_shared_1<<<dimGrid, dimBlock>>>(d_ref, d_items, max_cols, penalty, i, block_width);
  }
  std::vector<int> got(size);
  cudaMemcpy(got.data(), d_items, sizeof(int) * size, cudaMemcpyDeviceToHost);
  int wrong = 0;
  for (int i = 0; i < max_rows; i++)
    for (int j = 0; j < max_cols; j++)
      if ((i - 1) / BLOCK_SIZE + (j - 1) / BLOCK_SIZE < block_width && i && j) wrong += got[i * max_cols + j] != wanted[i * max_cols + j];
  return wrong == 0;
}

bool path() {
  int rows = 41, cols = 1000, pyramid_height = 8;
  std::vector<int> wall(rows * cols);
  for (auto &w : wall) w = rand() % 10;
  std::vector<int> best(wall.begin(), wall.begin() + cols);
  for (int t = 1; t < rows; t++) {
    std::vector<int> before = best;
    for (int n = 0; n < cols; n++) {
      int least = before[n];
      if (n > 0) least = MIN(least, before[n - 1]);
      if (n < cols - 1) least = MIN(least, before[n + 1]);
      best[n] = wall[t * cols + n] + least;
    }
  }
  int borderCols = (pyramid_height)*HALO;
  int smallBlockCol = BSIZE - (pyramid_height)*HALO * 2;
  int blockCols = cols / smallBlockCol + ((cols % smallBlockCol == 0) ? 0 : 1);
  int *gpuWall, *gpuResult[2];
  cudaMalloc((void **)&gpuResult[0], sizeof(int) * cols);
  cudaMalloc((void **)&gpuResult[1], sizeof(int) * cols);
  cudaMemcpy(gpuResult[0], wall.data(), sizeof(int) * cols, cudaMemcpyHostToDevice);
  cudaMalloc((void **)&gpuWall, sizeof(int) * (rows * cols - cols));
  cudaMemcpy(gpuWall, wall.data() + cols, sizeof(int) * (rows * cols - cols), cudaMemcpyHostToDevice);
  dim3 dimBlock(BSIZE);
  dim3 dimGrid(blockCols);
  int src = 1, dst = 0;
  for (int t = 0; t < rows - 1; t += pyramid_height) {
    int temp = src;
    src = dst;
    dst = temp;
    dynproc_kernel<<<dimGrid, dimBlock>>>(MIN(pyramid_height, rows - t - 1), gpuWall, gpuResult[src],
                                          gpuResult[dst], cols, rows, t, borderCols);
  }
  std::vector<int> got(cols);
  cudaMemcpy(got.data(), gpuResult[dst], sizeof(int) * cols, cudaMemcpyDeviceToHost);
  return got == best;
}

int main() {
  bool a = align(), b = path();
  printf("align %d path %d\n%s\n", a, b, a && b ? "PASSED" : "FAILED");
  return !(a && b);
}
