"""What of CUDA a CPU node cannot do: words and headers, what they are, and what to do."""

from __future__ import annotations

import re
from typing import Final

PLAIN = "write it with plain memory and arithmetic"
GRID_GROUPS = "groups of more than one block"
GRID_ADVICE = "end the kernel, and put the rest into a second one"
GPU_ONLY = "build this program for GPU nodes only: SAPWOOD_CUDA=gpu"
REFUSED: Final[tuple[tuple[re.Pattern[str], str, str], ...]] = tuple(
    (re.compile(pattern), what, advice)
    for pattern, what, advice in (
        (
            r"texCubemap\w*$|tex2Dgather$|tex[123]D\w*Grad$|surfCubemap\w*$|cudaMallocMipmappedArray$",
            "cube maps, gathers and mipmaps",
            "read the array itself",
        ),
        (r"wmma$|nvcuda$|__hmma\w*$|mma_sync$|load_matrix_sync$", "tensor cores", PLAIN),
        (
            r"cudaGraph(?!ics)\w*$|cudaStreamBeginCapture$|cudaStreamEndCapture$",
            "CUDA graphs",
            "launch the kernels one after the other",
        ),
        (
            (
                r"cu(?:Init|Ctx\w+|Module\w+|Mem[A-Z]\w+|Launch\w+|Device[A-Z]\w+|Func[A-Z]\w+|Link\w+"
                r"|Stream[A-Z]\w+|Event[A-Z]\w+)$"
            ),
            "the driver API",
            "use the runtime API: cudaMalloc, …",
        ),
        (
            r"CU(?:device|context|module|function|deviceptr|result|stream|event|linkState)$",
            "the driver API",
            "use the runtime API: cudaMalloc, …",
        ),
        (
            r"cudaLaunch(?:KernelEx\w*|CooperativeKernelMultiDevice|Device)$",
            "launches by function",
            "write kernel<<<grid, block>>>(…)",
        ),
        (
            r"__is(?:Global|Shared|Constant|Local|GridConstant)$|__cvta_\w+$|__nvvm_get_smem_pointer$",
            "asking in which memory a pointer is",
            "there is one memory here: tell the function by an argument",
        ),
        (r"cudaIpc\w+$", "CUDA IPC", GPU_ONLY),
        (
            (
                r"cublasXt\w+$|cublasLt(?:\w+Init(?:_internal)?|MatrixTransform\w*|Logger\w+|Heuristics\w+"
                r"|MatmulAlgo(?:GetIds|Check|Config\w+|Cap\w+)|GroupedMatrix\w*|BatchMode\w*)$"
                r"|CUBLASLT_MATMUL_DESC_(?:[A-D]_SCALE\w*|AMAX\w*|EPILOGUE_AUX_(?:SCALE|AMAX)\w*|\w+_VECTOR_\w+)$"
            ),
            "parts of cuBLASLt: transforms, chosen algorithms, scales of matrices",
            "use cublasLtMatmul with an algorithm of cublasLtMatmulAlgoGetHeuristic",
        ),
        (
            r"cufftXt\w+$|cufftCallback\w+$|cufftJIT\w+$|cufftSetPlanProperty\w+$|fftwf?_plan\w*$",
            "callbacks and several devices of cuFFT",
            "change the numbers by a kernel before or after the transform",
        ),
        (
            r"CURAND_RNG_QUASI\w+$|curandSetQuasi\w+$|curand(?:State(?:Mtgp32|Sobol|ScrambledSobol)\w*|DirectionVectors\w*|_mtgp32\w*)$",
            "generators other than XORWOW and Philox",
            "use curandState",
        ),
        (r"cudnn\w+$", "cuDNN", GPU_ONLY),
        (r"cusparseLt\w+$|cusolver\w+$|npp[is]\w+$", "an NVIDIA library", GPU_ONLY),
        (r"nccl[A-Z]\w+$", "NCCL", "let Sapwood reduce the results"),
        (r"cutlass$|cute$", "CUTLASS", GPU_ONLY),
        (
            r"cuda$",
            "parts of libcu++: barriers, pipelines and their like",
            "use CUDA's own functions: __syncthreads(), …",
        ),
        (
            r"__nv_fp8\w*e8m0\w*$|__nv_cvt_\w*e8m0\w*$|__nv_fp[64]\w*$|__nv_cvt_\w*fp[64](?:x\d)?(?:_\w+)?$",
            "floats of fewer than 8 bits, and E8M0",
            "use float",
        ),
        (
            r"this_multi_grid$|multi_grid_group$|this_cluster$|cluster_group$",
            GRID_GROUPS,
            GRID_ADVICE,
        ),
        (r"block_tile_memory$", "tiles of more than one warp", "reduce in shared memory"),
        (
            r"cudaMemPool(?:Export|Import|PtrExport)\w*$",
            "memory pools of several processes",
            "use cudaMalloc, and copy between processes",
        ),
        (
            r"cudaMemcpy3DPeer\w*$",
            "copies between devices",
            "use cudaMemcpy3D",
        ),
        (
            r"memcpy_async$|__pipeline_\w+$|cuda_pipeline$|__mbarrier_\w+$",
            "asynchronous copies",
            "copy by assignment, then __syncthreads()",
        ),
        (
            r"cudaGL\w+$|cudaGraphics\w+$|cudaEGL\w+$|cudaEgl\w+$|cudaD3D\w+$|cudaVDPAU\w+$",
            "graphics",
            GPU_ONLY,
        ),
        (r"optix[A-Z]\w*$|OptixDeviceContext$", "OptiX", GPU_ONLY),
        (
            r"cudaExternal\w+$|cudaImportExternal\w+$|cudaSignalExternal\w+$|cudaWaitExternal\w+$",
            "external memory",
            GPU_ONLY,
        ),
        (r"nvrtc[A-Z]\w*$", "NVRTC", "compile the kernel with the program"),
        (r"nvml[A-Z]\w*$", "NVML", GPU_ONLY),
        (r"nvjpeg\w+$", "nvJPEG", GPU_ONLY),
        (
            (
                r"cudla[A-Z]\w*$|CUDLA_\w+$|NvSci\w+$|cupti[A-Z]\w*$|CUpti_\w+$|nvshmemx?_\w+$"
                r"|cuFile\w+$|cudss[A-Z]\w*$|cutensor\w+$|Npp[a-z0-9]\w*$|nvgraph\w+$"
            ),
            "an NVIDIA library",
            GPU_ONLY,
        ),
    )
)
LIBRARY_HEADERS: Final = re.compile(
    rb"(?:cutlass|cute|cccl|cuda/experimental)/"
    rb"|cuda/(?:barrier|pipeline|semaphore|latch|annotated_ptr|ptx|stream_ref)"
    rb"|cublas|cufft|curand|cudnn|nccl|cusparse|cusolver|npp\w*\.h|nvrtc|nvml|nvjpeg|nvgraph"
    rb"|cudla|nvsci|cupti|nvshmem|cufile\.h|optix|cudss|cutensor"
    rb"|cuda\w*_interop\.h|cudaGL\.h|cudaEGL\.h|cuda_gl\w*\.h|cudaD3D"
    rb"|cuda_fp(?:8|6|4)\.h|mma\.h$|cuda_pipeline|cuda_awbarrier"
)
"""Headers of which none may be there: what a program uses of them is refused, not that it asks."""

OWN_HEADERS: Final = {
    b"thrust/": b"sapwood/thrust.h",
    b"cub/": b"sapwood/cub.h",
    b"cuda/std/": b"sapwood/cuda_std.h",
    b"cuda/atomic": b"sapwood/cuda_std.h",
    b"cuda/functional": b"sapwood/cuda_std.h",
    b"cuda/cmath": b"sapwood/cuda_std.h",
}
"""What headers begin with in whose place one header is."""

CUDA_NAMES: Final = frozenset(
    {
        *("std", "atomic", "atomic_ref", "atomic_thread_fence", "maximum", "minimum"),
        *("proclaim_return_type", "ceil_div", "round_up", "memory_order", "thread_scope"),
        *(f"thread_scope_{scope}" for scope in ("system", "device", "block", "thread")),
        *(
            f"memory_order_{order}"
            for order in ("relaxed", "consume", "acquire", "release", "acq_rel", "seq_cst")
        ),
    }
)
"""Names of the namespace ``cuda`` that a CPU node has."""
