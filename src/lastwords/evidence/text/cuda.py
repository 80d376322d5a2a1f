"""CUDA, HIP and their libraries: errors of kernels, memory, architectures and forked processes."""

from __future__ import annotations

from lastwords.evidence.text.reader import Reader, says

_ON_THE_CPU = r"device:CPU|allocator (?:mkl)?cpu"

READER = Reader(
    "cuda",
    (
        says("cuda-fork", "in forked subprocess", r"re-?initialize (?:CUDA|HIP|XPU|\w{2,6}) in forked subprocess"),
        says("cuda-fork", "poison_fork|_in_bad_fork", r"_in_bad_fork|poison_fork"),
        says("cuda-fork", "initialization error", r"(?:CUDA|cudaError|runtime)\S{0,40}.{0,60}initialization error|initialization error.{0,40}(?:CUDA|cuda)"),
        says("cuda-uninitialised", "initialization error", r"\bcu\w{2,40} (?:failed|returned|error).{0,20}initialization error"),
        says("cuda-fork", "fork", r"CUDA.{0,60}(?:before|after) (?:a |the )?fork"),
        says("cuda-fork", "cuda_error_not_initialized", r"CUDA_ERROR_NOT_INITIALIZED"),
        says("cuda-illegal", "illegal memory access", r"illegal memory access|an illegal memory access was encountered"),
        says("cuda-illegal", "illegal_address|illegaladdress", r"CUDA_ERROR_ILLEGAL_ADDRESS|cudaErrorIllegalAddress"),
        says("cuda-illegal", "misaligned", r"misaligned address|CUDA_ERROR_MISALIGNED_ADDRESS"),
        says("cuda-illegal", "unspecified launch failure|launch_failed", r"unspecified launch failure|CUDA_ERROR_LAUNCH_FAILED"),
        says("cuda-illegal", "invalid __", r"Invalid __(?:global|shared|local)__ (?:read|write)"),
        says("cuda-illegal", "memory access fault by gpu", r"Memory access fault by GPU"),
        says("cuda-illegal", "illegal instruction|illegalinstruction", r"CUDA.{0,40}illegal instruction was encountered|cudaErrorIllegalInstruction"),
        says("cuda-illegal", "an illegal instruction was encountered"),
        # Says that some kernel failed, of whatever: an index, a card, memory that ran out.
        says("gpu-step-failed", "execution_failed", r"CUBLAS_STATUS_EXECUTION_FAILED|CUDNN_STATUS_EXECUTION_FAILED"),
        says("cuda-illegal", "mapping_error", r"CUDNN_STATUS_MAPPING_ERROR"),
        # Every error of torch's ends with how to "enable device-side assertions", and says nothing by that.
        says("cuda-assert", "device-side assert", r"device-side assert(?!ions\b)"),
        says("cuda-assert", "cuda_error_assert|cudaerrorassert", r"CUDA_ERROR_ASSERT|cudaErrorAssert"),
        says("cuda-assert", "assertion", r"block: \[\d{1,8},\d{1,8},\d{1,8}\],? thread: \[[\d,]{1,20}\] Assertion [`']?(?P<condition>.{1,200}?)[`']? failed"),
        says("gpu-oom", "cuda out of memory", r"CUDA out of memory(?:.{0,20}Tried to allocate (?P<size>[\d.]{1,10} [KMGT]i?B))?"),
        says("gpu-oom", "out of memory", r"(?:HIP|XPU|MPS|GPU|cuda\w{0,10}|CUDA error:?|CUDNN\S{0,30}|device|VRAM)[ :]{0,2}.{0,20}out of memory|MPS backend out of memory"),
        says("gpu-oom", "outofmemoryerror", r"(?:torch|cupy|cuda|hip|xpu)[\w.]{0,40}\.OutOfMemoryError"),
        says("gpu-oom", "cuda_error_out_of_memory|cudaerrormemoryallocation", r"CUDA_ERROR_OUT_OF_MEMORY|cudaErrorMemoryAllocation"),
        says("gpu-oom", "resource_exhausted|resource exhausted", r"RESOURCE[_ ]EXHAUSTED: (?:Out of memory|OOM|.{0,120}(?:on device|GPU|HBM))", unless=_ON_THE_CPU),
        says("gpu-oom", "resourceexhaustederror", r"ResourceExhaustedError", unless=rf"{_ON_THE_CPU}|No space left"),
        says("gpu-oom", "oom when allocating", r"OOM when allocating tensor", unless=_ON_THE_CPU),
        says("gpu-oom", "memory", r"(?:not enough|insufficient|no available|out of)[\w ]{0,12} memory.{0,120}(?:mem[-_]fraction|gpu[-_]mem)"),
        says("gpu-oom", "alloc_failed", r"CUBLAS_STATUS_ALLOC_FAILED|CUSOLVER_STATUS_ALLOC_FAILED|CUDNN_STATUS_ALLOC_FAILED"),
        says("gpu-oom", "no available memory for the cache blocks"),
        says("gpu-oom", "kv cache", r"larger than the maximum number of tokens that can be stored in (?:the )?KV cache|(?:not enough|insufficient).{0,40}KV cache"),
        says("gpu-oom", "failed to allocate", r"failed to allocate.{0,60}(?:from device|GPU memory|device memory)"),
        says("gpu-oom", "gpu memory|free memory on device", r"(?:not enough|insufficient|ran out of) (?:free )?GPU memory|free memory on device.{0,120}less than desired"),
        says("gpu-arch", "no kernel image|no_binary_for_gpu", r"no kernel image is available for execution|NO_BINARY_FOR_GPU"),
        says("gpu-arch", "cuda capability", r"with CUDA capability (?P<have>sm_\d{2,3}\w?) is not compatible"),
        says("gpu-arch", "not compatible with the current pytorch"),
        says("gpu-arch", "unsupported gpu architecture", r"unsupported gpu architecture '?(?P<have>[\w]{1,20})"),
        says("gpu-arch", "gpu-name|ptxas", r"ptxas.{0,40}'(?P<have>sm_\w{2,6})' is not defined|not defined for option 'gpu-name'"),
        says("gpu-arch", "invalid device function|invaliddevicefunction", r"invalid device function|hipErrorInvalidDeviceFunction"),
        says("gpu-arch", "arch_mismatch", r"CUBLAS_STATUS_ARCH_MISMATCH|CUDNN_STATUS_ARCH_MISMATCH"),
        says("gpu-arch", "ptx|kernel image is invalid", r"device kernel image is invalid|PTX JIT compilation failed"),
        # CUDA's documentation: the code was made by a newer toolkit than the driver knows.
        says("version-mismatch", "ptx", r"PTX was compiled with an unsupported toolchain|UNSUPPORTED_PTX_VERSION"),
        # rocBLAS has a file of kernels for each GPU that it was built for.
        says("gpu-arch", "tensile", r"rocBLAS.{0,40}(?:cannot|could not|unable to) (?:read|load|open|initialize).{0,300}Tensile|Tensile.{0,200}(?:no such file|illegal seek)"),
        # The first handle takes memory, and comes after whatever went wrong before: mostly there is no memory left for it.
        says("gpu-handle-refused", "status_not_initialized", r"CU(?:BLAS|DNN|SOLVER|SPARSE)_STATUS_NOT_INITIALIZED"),
        says("gpu-arch", "compute capability", r"(?:requires?|needs?|only support(?:s|ed)?|minimum|at least|too old|not support(?:ed)?).{0,60}compute capability|compute capability.{0,60}(?:too (?:low|old)|not supported|or higher|required|is not)"),
        says("gpu-arch", "code object|gfx|nobinaryforgpu", r"no (?:suitable )?code object for|find code object|NoBinaryForGpu|Cannot find Symbol.{0,40}gfx|gfx\d{3,4}.{0,40}not supported"),
        says("gpu-arch", "support", r"(?:FlashAttention|flash attention|bfloat16|bf16|fp8|float8).{0,60}(?:only support|is only supported|not supported).{0,60}(?:GPU|Ampere|Hopper|capability)"),
    ),
)  # fmt: skip
