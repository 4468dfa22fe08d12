"""The filter of system calls that ranks run under, as a program of classic BPF. Pure.

What it refuses is what Docker's default profile refuses a container without capabilities: mounts, namespaces, modules, kernel keys, bpf,
kexec, clocks, tracing by perf, io_uring, userfaultfd. Tracing a process (ptrace) stays where processes of others cannot be seen.

Holds: a system call that is newer than this list does not exist for a rank. Another architecture's calls end the process.
"""

import errno
import struct

_LOAD, _JUMP_EQUAL, _JUMP_GREATER, _JUMP_SET, _RETURN = 0x20, 0x15, 0x25, 0x45, 0x06
_ALLOW, _KILL, _ERROR = 0x7FFF0000, 0x80000000, 0x00050000
_NUMBER, _ARCHITECTURE, _FIRST_ARGUMENT = 0, 4, 16
_AUDIT = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_CLONE, _CLONE3 = {"x86_64": 56, "aarch64": 220}, 435
_NAMESPACES = 0x7E020000
NEWEST = 466  # removexattrat, Linux 6.13

# Names with their numbers on x86_64 and aarch64; None: that architecture never had it.
DENIED: dict[str, tuple[int | None, int | None]] = {
    "acct": (163, 89),
    "add_key": (248, 217),
    "bpf": (321, 280),
    "chroot": (161, 51),
    "clock_adjtime": (305, 266),
    "clock_settime": (227, 112),
    "create_module": (174, None),
    "delete_module": (176, 106),
    "fanotify_init": (300, 262),
    "finit_module": (313, 273),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fsopen": (430, 430),
    "fspick": (433, 433),
    "get_kernel_syms": (177, None),
    "init_module": (175, 105),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "io_uring_setup": (425, 425),
    "ioperm": (173, None),
    "iopl": (172, None),
    "kcmp": (312, 272),
    "kexec_file_load": (320, 294),
    "kexec_load": (246, 104),
    "keyctl": (250, 219),
    "lookup_dcookie": (212, 18),
    "mount": (165, 40),
    "mount_setattr": (442, 442),
    "move_mount": (429, 429),
    "nfsservctl": (180, 42),
    "open_by_handle_at": (304, 265),
    "open_tree": (428, 428),
    "perf_event_open": (298, 241),
    "pivot_root": (155, 41),
    "query_module": (178, None),
    "quotactl": (179, 60),
    "quotactl_fd": (443, 443),
    "reboot": (169, 142),
    "request_key": (249, 218),
    "setdomainname": (171, 162),
    "sethostname": (170, 161),
    "setns": (308, 268),
    "settimeofday": (164, 170),
    "swapoff": (168, 225),
    "swapon": (167, 224),
    "sysfs": (139, None),
    "_sysctl": (156, None),
    "syslog": (103, 116),
    "umount2": (166, 39),
    "unshare": (272, 97),
    "uselib": (134, None),
    "userfaultfd": (323, 282),
    "ustat": (136, None),
    "vhangup": (153, 58),
}
TRACING: dict[str, tuple[int | None, int | None]] = {
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "ptrace": (101, 117),
}


def known(machine: str) -> bool:
    """Returns whether there is a filter for this architecture, by uname's name."""
    return machine in _AUDIT


def program(machine: str, *, tracing: bool) -> bytes:
    """The filter; `tracing`: processes may trace others that they see."""
    column = 0 if machine == "x86_64" else 1
    denied = {**DENIED, **({} if tracing else TRACING)}
    numbers = sorted({n for both in denied.values() if (n := both[column]) is not None})
    steps = [
        _step(_LOAD, _ARCHITECTURE),
        _step(_JUMP_EQUAL, _AUDIT[machine], 1, 0),
        _step(_RETURN, _KILL),
        _step(_LOAD, _NUMBER),
        _step(_JUMP_GREATER, NEWEST, 0, 1),
        _step(_RETURN, _ERROR | errno.ENOSYS),
        # The C library then takes clone, whose flags a filter can read.
        _step(_JUMP_EQUAL, _CLONE3, 0, 1),
        _step(_RETURN, _ERROR | errno.ENOSYS),
    ]
    for number in numbers:
        steps += [_step(_JUMP_EQUAL, number, 0, 1), _step(_RETURN, _ERROR | errno.EPERM)]
    steps += [
        _step(_JUMP_EQUAL, _CLONE[machine], 0, 3),
        _step(_LOAD, _FIRST_ARGUMENT),
        _step(_JUMP_SET, _NAMESPACES, 0, 1),
        _step(_RETURN, _ERROR | errno.EPERM),
        _step(_RETURN, _ALLOW),
    ]
    return b"".join(steps)


def _step(code: int, k: int, when: int = 0, otherwise: int = 0) -> bytes:
    return struct.pack("=HBBI", code, when, otherwise, k)
