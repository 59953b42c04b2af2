// Breadth-first search with masks and a flag that says whether to go on, after Rodinia.
#include <stdlib.h>
#include <stdio.h>
#include <string.h>
#include <math.h>
#include <cuda.h>

#define MAX_THREADS_PER_BLOCK 512

int no_of_nodes;
int edge_list_size;

//Structure to hold a node information
struct Node
{
	int starting;
	int no_of_edges;
};

#include "common/bfs_kernels.cuh"

void BFSGraph(int argc, char** argv);

int main( int argc, char** argv) 
{
	no_of_nodes=0;
	edge_list_size=0;
	BFSGraph( argc, argv);
}

void BFSGraph( int argc, char** argv) 
{
	int source = 0;
	no_of_nodes = 3000;
	int num_of_blocks = 1;
	int num_of_threads_per_block = no_of_nodes;
	if(no_of_nodes>MAX_THREADS_PER_BLOCK)
	{
		num_of_blocks = (int)ceil(no_of_nodes/(double)MAX_THREADS_PER_BLOCK); 
		num_of_threads_per_block = MAX_THREADS_PER_BLOCK; 
	}

	// allocate host memory
	Node* h_graph_nodes = (Node*) malloc(sizeof(Node)*no_of_nodes);
	bool *h_graph_mask = (bool*) malloc(sizeof(bool)*no_of_nodes);
	bool *h_updating_graph_mask = (bool*) malloc(sizeof(bool)*no_of_nodes);
	bool *h_graph_visited = (bool*) malloc(sizeof(bool)*no_of_nodes);
	edge_list_size = 3 * no_of_nodes;
	int* h_graph_edges = (int*) malloc(sizeof(int)*edge_list_size);
	for( unsigned int i = 0; i < no_of_nodes; i++) 
	{
		h_graph_nodes[i].starting = 3 * i;
		h_graph_nodes[i].no_of_edges = 3;
		for (int k = 0; k < 3; k++) h_graph_edges[3 * i + k] = k ? (i * 7 + k * 13) % no_of_nodes : (i + 1) % no_of_nodes;
		h_graph_mask[i]=false;
		h_updating_graph_mask[i]=false;
		h_graph_visited[i]=false;
	}
	h_graph_mask[source]=true;
	h_graph_visited[source]=true;

	Node* d_graph_nodes;
	cudaMalloc( (void**) &d_graph_nodes, sizeof(Node)*no_of_nodes) ;
	cudaMemcpy( d_graph_nodes, h_graph_nodes, sizeof(Node)*no_of_nodes, cudaMemcpyHostToDevice) ;
	int* d_graph_edges;
	cudaMalloc( (void**) &d_graph_edges, sizeof(int)*edge_list_size) ;
	cudaMemcpy( d_graph_edges, h_graph_edges, sizeof(int)*edge_list_size, cudaMemcpyHostToDevice) ;
	bool *d_graph_mask, *d_updating_graph_mask, *d_graph_visited;
	cudaMalloc( (void**) &d_graph_mask, sizeof(bool)*no_of_nodes) ;
	cudaMemcpy( d_graph_mask, h_graph_mask, sizeof(bool)*no_of_nodes, cudaMemcpyHostToDevice) ;
	cudaMalloc( (void**) &d_updating_graph_mask, sizeof(bool)*no_of_nodes) ;
	cudaMemcpy( d_updating_graph_mask, h_updating_graph_mask, sizeof(bool)*no_of_nodes, cudaMemcpyHostToDevice) ;
	cudaMalloc( (void**) &d_graph_visited, sizeof(bool)*no_of_nodes) ;
	cudaMemcpy( d_graph_visited, h_graph_visited, sizeof(bool)*no_of_nodes, cudaMemcpyHostToDevice) ;

	int* h_cost = (int*) malloc( sizeof(int)*no_of_nodes);
	int* reference = (int*) malloc( sizeof(int)*no_of_nodes);
	for(int i=0;i<no_of_nodes;i++)
		reference[i] = h_cost[i]=-1;
	reference[source] = h_cost[source]=0;
	int* d_cost;
	cudaMalloc( (void**) &d_cost, sizeof(int)*no_of_nodes);
	cudaMemcpy( d_cost, h_cost, sizeof(int)*no_of_nodes, cudaMemcpyHostToDevice) ;

	//make a bool to check if the execution is over
	bool *d_over;
	cudaMalloc( (void**) &d_over, sizeof(bool));
	printf("Copied Everything to GPU memory\n");

	// setup execution parameters
	dim3  grid( num_of_blocks, 1, 1);
	dim3  threads( num_of_threads_per_block, 1, 1);
	int k=0;
	bool stop;
	do
	{
		//if no thread changes this value then the loop stops
		stop=false;
		cudaMemcpy( d_over, &stop, sizeof(bool), cudaMemcpyHostToDevice) ;
		Kernel<<< grid, threads, 0 >>>( d_graph_nodes, d_graph_edges, d_graph_mask, d_updating_graph_mask, d_graph_visited, d_cost, no_of_nodes);
		Kernel2<<< grid, threads, 0 >>>( d_graph_mask, d_updating_graph_mask, d_graph_visited, d_over, no_of_nodes);
		cudaMemcpy( &stop, d_over, sizeof(bool), cudaMemcpyDeviceToHost) ;
		k++;
	}
	while(stop);
	printf("Kernel Executed %d times\n",k);
	cudaMemcpy( h_cost, d_cost, sizeof(int)*no_of_nodes, cudaMemcpyDeviceToHost) ;

	int *queue = (int *) malloc(sizeof(int) * no_of_nodes), head = 0, tail = 1;
	queue[0] = source;
	while (head < tail) {
		int n = queue[head++];
		for (int e = 0; e < 3; e++) {
			int to = h_graph_edges[3 * n + e];
			if (reference[to] < 0) reference[to] = reference[n] + 1, queue[tail++] = to;
		}
	}
	bool same = memcmp(reference, h_cost, sizeof(int) * no_of_nodes) == 0;
	printf("%s\n", same ? "PASSED" : "FAILED");
	cudaFree(d_graph_nodes);
	cudaFree(d_graph_edges);
	if (!same) exit(1);
}
