"""Lines that blame the program: what it asked of torch, CUDA, NCCL and the host can never work, or its kernels went wrong."""

from typing import Final

from trainhouse.events import FailureCategory
from trainhouse.scheduler.core.blame.rules.rule import Rule

_U: Final = FailureCategory.USER_CODE

MEMORY: Final = (
    Rule(
        "device-out-of-memory",
        r"CUDA out of memory|CUDA error: out of memory|CUBLAS_STATUS_ALLOC_FAILED|HIP out of memory",
        _U,
        "the program needs more memory than its device has",
        mine=True,
    ),
    Rule(
        "host-out-of-memory",
        r"Memory cgroup out of memory|CONSTRAINT_MEMCG|oom-kill event|OOMKilled",
        _U,
        "the program needs more of the host's memory than it asked for",
        mine=True,
    ),
    Rule(
        "allocation-refused",
        r"DefaultCPUAllocator: (?:can't|not enough)|^MemoryError\b|std::bad_alloc|\[Errno 12\] Cannot allocate memory|"
        r"Unable to allocate [\d.]+ [KMGT]iB for an array",
        _U,
        "the program asks for more of the host's memory than there is",
        mine=True,
    ),
    Rule(
        "loader-worker-killed",
        r"DataLoader worker \(pid[^)\n]*\) is killed by signal: Killed",
        _U,
        "a loader's worker was killed, most likely for the host's memory",
    ),
    Rule(
        "loader-worker-crashed",
        r"DataLoader worker \(pid[^)\n]*\) (?:is killed by signal|exited unexpectedly)",
        _U,
        "a loader's worker crashed",
    ),
    Rule(
        "too-many-processes",
        r"can't start new thread|fork: Resource temporarily unavailable|BlockingIOError: \[Errno 11\]|rejected by pids controller",
        _U,
        "the program starts more processes or threads than it may",
    ),
    Rule("too-many-files", r"\[Errno 24\]|Too many open files", _U, "the program holds too many files open"),
)

KERNELS: Final = (
    Rule(
        "device-assert",
        r"device-side assert triggered|Assertion `[^`'\n]*['`] failed",
        _U,
        "an index or a label is out of range on the device",
        mine=True,
    ),
    Rule(
        "no-kernel",
        r"no kernel image is available|invalid device ordinal|invalid device function|CUDA driver version is insufficient",
        _U,
        "the program was built for another device or asks for one that it has not",
        mine=True,
    ),
    Rule(
        "illegal-access",
        r"an illegal memory access was encountered|misaligned address|illegal instruction was encountered|CUDA error: invalid argument",
        _U,
        "a kernel of the program touched memory that is not its own",
    ),
    Rule("xid-program", r"Xid \([^)\n]*\): (?:8|13|31|32|43|68|69)\b", _U, "a kernel of the program went wrong"),
    Rule(
        "launch-failure",
        r"unspecified launch failure|too many resources requested for launch|the launch timed out",
        _U,
        "a kernel of the program failed",
    ),
    Rule(
        "math-library",
        r"CUBLAS_STATUS_|CUDNN_STATUS_|CUSOLVER_STATUS_|CUSPARSE_STATUS_|cuDNN error|CUFFT_",
        _U,
        "a call to a math library failed",
    ),
)

COLLECTIVES: Final = (
    Rule(
        "collective-mismatch",
        r"Detected mismatch between collectives|Mismatched collective detected|collective mismatch",
        _U,
        "the ranks called different collectives",
        mine=True,
    ),
    Rule(
        "nccl-usage",
        r"ncclInvalidUsage|ncclInvalidArgument|Duplicate GPU detected|invalid usage \(run with",
        _U,
        "the program uses NCCL in a way that cannot work",
        mine=True,
    ),
    Rule(
        "ddp-unused",
        r"Expected to have finished reduction in the prior iteration|marked (?:as )?ready twice",
        _U,
        "the model and DistributedDataParallel do not fit together",
        mine=True,
    ),
)

TORCH: Final = (
    Rule(
        "state-dict",
        r"Error\(s\) in loading state_dict|size mismatch for |Missing key\(s\) in state_dict",
        _U,
        "the weights are of another model",
        mine=True,
    ),
    Rule(
        "shapes",
        r"shapes cannot be multiplied|must match the size of tensor|shape .{0,200} is invalid for input|"
        r"Sizes of tensors must match|size mismatch|Expected input batch_size|must match the existing size",
        _U,
        "shapes of tensors do not fit",
        mine=True,
    ),
    Rule(
        "tensor-use",
        r"Expected all tensors to be on the same device|Expected (?:object of )?scalar type|"
        r"does not require grad and does not have a grad_fn|backward through the graph a second time|"
        r"modified by an inplace operation|expected scalar type",
        _U,
        "tensors are used in a way that cannot work",
        mine=True,
    ),
    Rule(
        "compile",
        r"torch\._dynamo\.exc|BackendCompilerFailed|torch\._inductor\.exc|triton\.compiler\.errors|CppCompileError",
        _U,
        "the program cannot be compiled",
    ),
    Rule(
        "not-a-number",
        r"(?i:\bloss is nan\b|loss is not finite|returned nan values)|Function '\w+' returned nan",
        _U,
        "the loss is not a number",
        mine=True,
    ),
)

COMMANDS: Final = (
    Rule("arguments", r"^[\w.-]+: error: |^usage: ", _U, "the command's arguments are wrong", mine=True),
    Rule(
        "no-such-command",
        r"can't open file '|command not found|^exec: .{0,200}: not found|Permission denied: '[^'\n]+\.(?:sh|py)'",
        _U,
        "the command names a program that is not there",
        mine=True,
    ),
    Rule(
        "libraries",
        r"GLIBC(?:XX)?_[\d.]+' not found|cannot open shared object file|undefined symbol: ",
        _U,
        "the program's libraries do not fit together",
        mine=True,
    ),
)
