"""Published peaks of accelerators: dense FLOPs a second by the name that the driver reports.

Source: the data sheets at nvidia.com, without structured sparsity (HGX B200; H200; H100 Tensor Core GPU; A100; L40S, L40, L4; A40, A30,
A10; V100; T4). A100, L40S and older sheets print the dense figure; H100 and later print twice that, with sparsity.
Holds: a name matches as a whole: a part of a device (MIG), or a device that is not listed, has no peak.
"""

import re
from collections.abc import Mapping
from typing import Final, Literal

Precision = Literal["bf16", "fp16", "tf32", "fp32"]

_TERA = 1e12
# (name, {precision: TFLOP/s})
_PEAKS: Final[tuple[tuple[str, dict[Precision, float]], ...]] = (
    (r"NVIDIA B200", {"bf16": 2250.0, "fp16": 2250.0, "tf32": 1125.0}),
    (r"NVIDIA (H200|H100 80GB HBM3)", {"bf16": 989.5, "fp16": 989.5, "tf32": 494.5, "fp32": 67.0}),
    (r"NVIDIA (H200|H100) NVL", {"bf16": 835.5, "fp16": 835.5, "tf32": 417.5, "fp32": 60.0}),
    (r"NVIDIA H100 PCIe", {"bf16": 756.5, "fp16": 756.5, "tf32": 378.0, "fp32": 51.0}),
    (r"(NVIDIA )?A100[- ](SXM4-|PCIE-|PCIe-)?(40|80)GB( PCIe)?", {"bf16": 312.0, "fp16": 312.0, "tf32": 156.0, "fp32": 19.5}),
    (r"NVIDIA L40S", {"bf16": 362.05, "fp16": 362.05, "tf32": 183.0, "fp32": 91.6}),
    (r"NVIDIA L40", {"bf16": 181.05, "fp16": 181.05, "tf32": 90.5, "fp32": 90.5}),
    (r"NVIDIA L4", {"bf16": 121.0, "fp16": 121.0, "tf32": 60.0, "fp32": 30.3}),
    (r"NVIDIA A40", {"bf16": 149.7, "fp16": 149.7, "tf32": 74.8, "fp32": 37.4}),
    (r"NVIDIA A30", {"bf16": 165.0, "fp16": 165.0, "tf32": 82.0, "fp32": 10.3}),
    (r"NVIDIA A10", {"bf16": 125.0, "fp16": 125.0, "tf32": 62.5, "fp32": 31.2}),
    (r"Tesla V100-SXM[23]-\d+GB(-LS)?", {"fp16": 125.0, "fp32": 15.7}),
    (r"Tesla V100-PCIE-\d+GB", {"fp16": 112.0, "fp32": 14.0}),
    (r"Tesla T4", {"fp16": 65.0, "fp32": 8.1}),
)


def peak_flops(device_name: str, precision: Precision | None) -> float | None:
    """Returns the dense peak in FLOPs a second; None for a device or precision that no data sheet here names."""
    if precision is None:
        return None
    for name, peaks in _PEAKS:
        if re.fullmatch(name, device_name.strip()):
            tera = peaks.get(precision)
            return None if tera is None else tera * _TERA
    return None


def mixed_peak(device_name: str, flops: Mapping[Precision | None, float]) -> float | None:
    """Returns the peak of work in several precisions, each weighted by its FLOPs; None if the peak of one of them is not known."""
    seconds = 0.0
    for precision, each in flops.items():
        peak = peak_flops(device_name, precision)
        if peak is None:
            return None
        seconds += each / peak
    return sum(flops.values()) / seconds if seconds else None
