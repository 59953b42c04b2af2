"""GPUs: CUDA sources on every node, with a GPU or without."""
