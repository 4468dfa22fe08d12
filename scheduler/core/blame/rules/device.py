"""Lines that blame a device, and those that blame its node: drivers, memory of the host, processes of others.

Source of the meaning of Xid numbers: NVIDIA, "XID Errors", catalogue of GPU Debug Guidelines.
"""

from typing import Final

from trainhouse.events import FailureCategory
from trainhouse.scheduler.core.blame.rules.rule import Rule

_D: Final = FailureCategory.DEVICE
_N: Final = FailureCategory.NODE
_XID: Final = r"Xid \([^)\n]*\): "

DEVICE: Final = (
    Rule(
        "xid-hardware",
        _XID + r"(?:48|62|6[34]|74|79|8[01]|92|9[45]|119|120|12[0-3]|13[67]|14\d|15[0-8]|171|172)\b",
        _D,
        "the driver reported a fault of the device",
    ),
    Rule(
        "device-off-the-bus",
        r"fallen off the bus|GPU is lost|GPU_IS_LOST|GPU has become inaccessible|GPU requires reset|Reset required",
        _D,
        "the device left the bus",
    ),
    Rule(
        "ecc-uncorrectable",
        r"uncorrectable ECC error|ECC_UNCORRECTABLE|double.bit ECC|Contained ECC error",
        _D,
        "the device's memory is damaged",
    ),
    Rule("nvlink", r"uncorrectable NVLink error|NVLINK_UNCORRECTABLE|NVLink: fatal error", _D, "the device's NVLink failed"),
    Rule(
        "device-hardware",
        r"cudaErrorHardwareStackError|hardware stack error|cudaErrorContained|tensor memory.*parity error",
        _D,
        "the device's hardware failed",
    ),
    Rule("device-busy", r"CUDA-capable device\(s\) is/are busy or unavailable", _D, "the device takes no work"),
    Rule("gsp-timeout", r"Timeout waiting for RPC from GSP", _D, "the device's firmware does not answer"),
    Rule(
        "device-memory",
        r"(?i:row.remap(?:ping)?.failure|remapping failed)|Double Bit ECC|RmInitAdapter failed|HBM.{0,40}uncorrectable",
        _D,
        "the device's memory cannot be mended any more",
    ),
    Rule(
        "device-amd",
        r"HSA_STATUS_ERROR_(?:EXCEPTION|MEMORY_FAULT)|amdgpu .{0,80}GPU reset|amdgpu .{0,80}RAS .{0,40}error|hipErrorECCNotCorrectable",
        _D,
        "the device failed",
    ),
    Rule(
        "device-unknown-error",
        r"CUDA error: unknown error|cuda runtime error \(30\)|cudaErrorUnknown|CUDA_ERROR_UNKNOWN",
        _D,
        "the driver lost the device and does not know why",
    ),
)

NODE: Final = (
    Rule("driver-mismatch", r"Driver/library version mismatch", _N, "the node's driver and its libraries differ: reboot it"),
    Rule(
        "fabric-manager",
        r"Error 80[23]\b|system not yet initialized|unsupported display driver / cuda driver",
        _N,
        "the node's driver is not set up: is its fabric manager up?",
    ),
    Rule(
        "no-device",
        r"No CUDA GPUs are available|no CUDA-capable device is detected|NVIDIA driver on your system is too old",
        _N,
        "the node's devices are not there for a program",
    ),
    Rule(
        "nvml",
        r"Failed to initialize NVML|couldn't communicate with the NVIDIA driver|Unable to determine the device handle",
        _N,
        "the node's driver does not answer",
    ),
    Rule(
        "device-held",
        r"CUDA out of memory\..*\bProcess \d+ has [\d.]+ [GT]iB memory in use",
        _N,
        "a process that is not the job's holds the device's memory",
    ),
    Rule("node-out-of-memory", r"constraint=CONSTRAINT_NONE|\bglobal_oom\b", _N, "the whole node ran out of memory"),
    Rule(
        "shared-memory",
        r"insufficient shared memory|out of shared memory|No space left on device: '/dev/shm|unable to (?:open|mmap|write) .{0,80}</torch_",
        _N,
        "the node's shared memory is too small",
    ),
    Rule(
        "machine-check",
        r"Machine check events logged|mce: \[Hardware Error\]|EDAC .{0,80}\bUE\b",
        _N,
        "the node's processor or memory reported a fault",
    ),
    Rule(
        "kernel-stuck",
        r"soft lockup|Kernel panic|blocked for more than \d+ seconds|rcu_sched self-detected stall",
        _N,
        "the node's kernel is stuck",
    ),
)
