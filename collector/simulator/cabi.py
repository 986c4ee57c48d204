"""Small helpers to read and write ctypes arguments the way a C function would."""

from __future__ import annotations

import ctypes
import struct
from typing import Any, Final

SUCCESS: Final = 0
UNINITIALIZED: Final = 1
INVALID_ARGUMENT: Final = 2
NOT_SUPPORTED: Final = 3
NO_PERMISSION: Final = 4
NOT_FOUND: Final = 6
INSUFFICIENT_SIZE: Final = 7
GPU_IS_LOST: Final = 15
NO_DATA: Final = 21
ARGUMENT_VERSION_MISMATCH: Final = 25
UNKNOWN: Final = 999

ERROR_TEXT: Final = {
    0: b"Success",
    1: b"Uninitialized",
    2: b"Invalid Argument",
    3: b"Not Supported",
    4: b"Insufficient Permissions",
    6: b"Not Found",
    7: b"Insufficient Size",
    9: b"Driver Not Loaded",
    10: b"Timeout",
    12: b"NVML Shared Library Not Found",
    13: b"Function Not Found",
    15: b"GPU is lost",
    16: b"GPU requires reset",
    18: b"Driver/library version mismatch",
    21: b"No data",
    25: b"Argument version mismatch",
    28: b"GPU not found",
    999: b"Unknown Error",
}


def target(argument: Any) -> Any:
    """Return the ctypes object behind `byref(x)`, `pointer(x)` or x itself; None for NULL."""
    if argument is None:
        return None
    inner = getattr(argument, "_obj", None)
    if inner is not None:
        return inner
    if isinstance(argument, ctypes._Pointer):
        return argument.contents if argument else None
    return argument


def number(argument: Any) -> int:
    """Return the integer in a ctypes scalar or a plain int."""
    return int(getattr(argument, "value", argument))


def text(argument: Any) -> bytes:
    """Return the bytes of a `char *` argument."""
    value = getattr(argument, "value", argument)
    return value.encode() if isinstance(value, str) else bytes(value or b"")


def handle_value(argument: Any) -> int:
    """Return an opaque handle as an integer; 0 for NULL."""
    inner = getattr(argument, "_obj", argument)
    if inner is None:
        return 0
    if isinstance(inner, int):
        return inner
    return ctypes.c_void_p.from_buffer(inner).value or 0


def put_handle(argument: Any, value: int) -> None:
    """Write an opaque handle through its address."""
    ctypes.c_void_p.from_buffer(target(argument)).value = value


def put_u32(argument: Any, value: int) -> None:
    """Write an unsigned int through its address."""
    struct.pack_into("<I", target(argument), 0, value & 0xFFFF_FFFF)


def put_u64(argument: Any, value: int) -> None:
    """Write an unsigned long long through its address."""
    struct.pack_into("<Q", target(argument), 0, value)


def put_text(buffer: Any, size: Any, value: str) -> int:
    """Write a C string; return INSUFFICIENT_SIZE where it does not fit."""
    data = value.encode() + b"\0"
    if len(data) > number(size):
        return INSUFFICIENT_SIZE
    ctypes.memmove(target(buffer), data, len(data))
    return SUCCESS
