"""A seccomp filter, assembled by hand: system calls that no build or test needs, and that have been ways out of
containers or are large attack surfaces, fail with EPERM. The rest of the isolation does not rest on it.

The list follows what Docker's default profile leaves out (docs.docker.com/engine/security/seccomp). Classic BPF as in
linux/filter.h; `struct seccomp_data` holds the call's number at offset 0 and the architecture at offset 4.
"""

import os
import struct

_LOAD, _EQUAL, _AT_LEAST, _RETURN = 0x20, 0x15, 0x35, 0x06
_ALLOW, _REFUSE = 0x7FFF0000, 0x00050001
_X32 = 0x40000000
_ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}

_NUMBERS = {
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "kcmp": (312, 272),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "unshare": (272, 97),
    "setns": (308, 268),
    "init_module": (175, 105),
    "delete_module": (176, 106),
    "finit_module": (313, 273),
    "kexec_load": (246, 104),
    "reboot": (169, 142),
    "swapon": (167, 224),
    "swapoff": (168, 225),
    "acct": (163, 89),
    "quotactl": (179, 60),
    "syslog": (103, 116),
    "name_to_handle_at": (303, 264),
    "open_by_handle_at": (304, 265),
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "pidfd_getfd": (438, 438),
    "mount_setattr": (442, 442),
}
"""Name -> its number on x86_64 and on aarch64."""


def program(machine: str = os.uname().machine) -> bytes:
    """The filter for a machine as `struct sock_filter` entries. Raises `KeyError` for a machine that we hold no numbers
    for; callers run without a filter there, and the probe says so."""
    column = {"x86_64": 0, "aarch64": 1}[machine]
    numbers = [pair[column] for pair in _NUMBERS.values()]
    # A call from another architecture (32-bit on a 64-bit kernel) has other numbers: all of those are refused.
    code = [(_LOAD, 0, 0, 4), (_EQUAL, 1, 0, _ARCH[machine]), (_RETURN, 0, 0, _REFUSE), (_LOAD, 0, 0, 0)]
    code.append((_AT_LEAST, len(numbers) + 1, 0, _X32))
    code += [(_EQUAL, len(numbers) - index, 0, number) for index, number in enumerate(numbers)]
    code += [(_RETURN, 0, 0, _ALLOW), (_RETURN, 0, 0, _REFUSE)]
    return b"".join(struct.pack("=HBBI", *line) for line in code)
