"""The driver library, through the official pynvml, as lean as a one-second loop wants it.

Structures, versions and the library itself come from pynvml; the calls of the loop go through its
function pointers with buffers made once, and give back NVML's return code instead of raising.
"""

from __future__ import annotations

import ctypes
import importlib
import struct
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any, Final

from idlewatt.errors import DriverError

SUCCESS: Final = 0
UNINITIALIZED: Final = 1
NOT_SUPPORTED: Final = 3
NO_PERMISSION: Final = 4
INSUFFICIENT_SIZE: Final = 7
DRIVER_NOT_LOADED: Final = 9
FUNCTION_NOT_FOUND: Final = 13
GPU_IS_LOST: Final = 15
RESET_REQUIRED: Final = 16
LIB_RM_VERSION_MISMATCH: Final = 18
NOT_READY: Final = 27
GPU_NOT_FOUND: Final = 28
UNKNOWN: Final = 999

# What a device or a driver will not give at all, until something is changed.
CAPABILITY: Final = {
    2: "unsupported",  # INVALID_ARGUMENT: a field that this driver does not know
    NOT_SUPPORTED: "unsupported",
    NO_PERMISSION: "no_permission",
    FUNCTION_NOT_FOUND: "function_not_found",
    25: "function_not_found",  # ARGUMENT_VERSION_MISMATCH: an older structure
    26: "unsupported",  # DEPRECATED
}
# Off the bus, or in need of a reset: nothing more is to be had from this handle.
LOST: Final = frozenset({GPU_IS_LOST, RESET_REQUIRED, GPU_NOT_FOUND, UNKNOWN})
# The whole library must be opened again.
DRIVER_GONE: Final = frozenset({UNINITIALIZED, DRIVER_NOT_LOADED, LIB_RM_VERSION_MISMATCH})

U32_NOT_AVAILABLE: Final = 2**32 - 1
U64_NOT_AVAILABLE: Final = 2**64 - 1

SCOPE_GPU: Final = 0
SCOPE_MODULE: Final = 1

FI_PERF_POLICY_POWER: Final = 74
FI_PERF_POLICY_THERMAL: Final = 75
FI_MEMORY_TEMP: Final = 82
FI_ENERGY: Final = 83
FI_POWER_AVERAGE: Final = 185
FI_POWER_INSTANT: Final = 186
FI_POWER_CURRENT_LIMIT: Final = 190
FI_POWER_REQUESTED_LIMIT: Final = 192
FI_SW_THERMAL: Final = 269
FI_HW_THERMAL: Final = 270
FI_HW_BRAKE: Final = 271

ARCHITECTURES: Final = {
    2: "kepler",
    3: "maxwell",
    4: "pascal",
    5: "volta",
    6: "turing",
    7: "ampere",
    8: "ada",
    9: "hopper",
    10: "blackwell",
    13: "rubin",
}

# fieldId, scopeId, timestamp, latencyUsec, valueType, nvmlReturn, value
_FIELD: Final = struct.Struct("=IIqqii8s")
_FIELD_HEAD: Final = struct.Struct("=II")
_VALUE: Final = {
    0: struct.Struct("=d"),
    1: struct.Struct("=I"),
    2: struct.Struct("=Q"),
    3: struct.Struct("=Q"),
    4: struct.Struct("=q"),
    5: struct.Struct("=i"),
    6: struct.Struct("=H"),
}
_SENTINEL: Final = {1: U32_NOT_AVAILABLE, 2: U64_NOT_AVAILABLE, 3: U64_NOT_AVAILABLE}

# What somebody sets is as true as on the day it was set: its time says nothing.
SETTINGS: Final = frozenset({FI_POWER_CURRENT_LIMIT, FI_POWER_REQUESTED_LIMIT})
# Earlier than any driver of today: not a time of day (0, or time since the machine started).
_FIRST_TIME_US: Final = 1_420_070_400_000_000

Field = tuple[int, int]


def load() -> ModuleType:
    """Return pynvml, once it is certain to be NVIDIA's own.

    Raises:
        DriverError: another package of that name stands in its way.
    """
    module = importlib.import_module("pynvml")
    if not (
        hasattr(module, "_nvmlGetFunctionPointer") and hasattr(module, "nvmlDeviceGetFieldValues")
    ):
        raise DriverError(
            f"the module pynvml at {module.__file__} is not NVIDIA's nvidia-ml-py:"
            " run `pip uninstall pynvml` and `pip install --force-reinstall nvidia-ml-py`"
        )
    return module


class Nvml:
    """An initialised driver library.

    Raises:
        DriverError: the library is missing, the driver is not loaded, or it refuses.
    """

    def __init__(self) -> None:
        self.lib: Any = load()
        self._pointers: dict[str, Callable[..., int] | None] = {}
        try:
            self.lib.nvmlInit()
        except self.lib.NVMLError as exc:
            raise DriverError(
                f"the GPU driver cannot be opened: {exc}; is the NVIDIA driver loaded here?"
            ) from exc

    def close(self) -> None:
        """Let the driver go."""
        try:
            self.lib.nvmlShutdown()
        except self.lib.NVMLError:
            return

    def function(self, name: str) -> Callable[..., int] | None:
        """Return a function of the library, or None if the driver does not have it."""
        if name not in self._pointers:
            try:
                self._pointers[name] = self.lib._nvmlGetFunctionPointer(name)
            except self.lib.NVMLError:
                self._pointers[name] = None
        return self._pointers[name]

    def ask(self, name: str, *args: Any) -> Any:
        """Return the answer of a pynvml call, or None if the driver refuses it."""
        try:
            return getattr(self.lib, name)(*args)
        except (AttributeError, self.lib.NVMLError):
            return None

    def error_name(self, code: int) -> str:
        """Return NVML's name of a return code."""
        for name, value in vars(self.lib).items():
            if value == code and name.startswith("NVML_ERROR_"):
                return str(name).removeprefix("NVML_ERROR_").lower()
        return f"error_{code}"

    def count(self) -> int:
        """Return the number of devices.

        Raises:
            DriverError: the driver does not say.
        """
        try:
            return int(self.lib.nvmlDeviceGetCount())
        except self.lib.NVMLError as exc:
            raise DriverError(f"the GPU driver does not count its devices: {exc}") from exc

    def handle_by_uuid(self, uuid: str) -> tuple[int, Any]:
        """Return the return code and the handle of a device."""
        try:
            return SUCCESS, self.lib.nvmlDeviceGetHandleByUUID(uuid)
        except self.lib.NVMLError as exc:
            return int(exc.value), None


class FieldReader:
    """Reads a fixed set of fields of one device with a single call."""

    def __init__(self, nvml: Nvml, handle: Any, fields: Sequence[Field]) -> None:
        self._call = nvml.function("nvmlDeviceGetFieldValues")
        self._handle = handle
        self._fields = tuple(fields)
        self._array = (nvml.lib.c_nvmlFieldValue_t * max(len(fields), 1))()
        self._ref = ctypes.byref(self._array)
        self._count = ctypes.c_int32(len(fields))

    def read(
        self, stale_before_us: int = 0
    ) -> tuple[int, dict[Field, tuple[int, int | float | None]]]:
        """Return the call's code, and for each field its own code and value.

        Args:
            stale_before_us: UTC time; what the driver itself sampled earlier has no value.

        Returns:
            The value is None where the driver gave a sentinel or a stale reading.
        """
        if self._call is None:
            return SUCCESS, dict.fromkeys(self._fields, (FUNCTION_NOT_FOUND, None))
        if not self._fields:
            return SUCCESS, {}
        for place, field in enumerate(self._fields):
            _FIELD_HEAD.pack_into(self._array, place * _FIELD.size, *field)
        code = self._call(self._handle, self._count, self._ref)
        if code != SUCCESS:
            return code, {}
        found: dict[Field, tuple[int, int | float | None]] = {}
        for field, entry in zip(self._fields, _FIELD.iter_unpack(self._array), strict=True):
            found[field] = _field_value(entry[4], entry[5], entry[6])
            if _FIRST_TIME_US < entry[2] < stale_before_us and field[0] not in SETTINGS:
                found[field] = entry[5], None
        return SUCCESS, found


def _field_value(kind: int, code: int, raw: bytes) -> tuple[int, int | float | None]:
    if code != SUCCESS:
        return code, None
    layout = _VALUE.get(kind)
    if layout is None:
        return NOT_SUPPORTED, None
    value = layout.unpack_from(raw)[0]
    return SUCCESS, (None if value == _SENTINEL.get(kind) else value)


class Getter:
    """One direct call of one device with its buffer made once.

    Args:
        nvml: the library.
        handle: the device.
        names: C functions that do the same, newest first; the first one found is used.
        buffer: what the answer is written to.
        before: arguments between handle and buffer.
    """

    def __init__(
        self, nvml: Nvml, handle: Any, names: Sequence[str], buffer: Any, before: Sequence[Any] = ()
    ) -> None:
        found = (nvml.function(name) for name in names)
        self._call = next((call for call in found if call is not None), None)
        self._args = (handle, *before, ctypes.byref(buffer))
        self.buffer = buffer

    def __call__(self) -> int:
        """Return the code of the call; the answer is in `buffer`."""
        return FUNCTION_NOT_FOUND if self._call is None else self._call(*self._args)


class ProcessList:
    """Process ids from one of the driver's process lists, with one call.

    Attributes:
        supported: False once the driver has said that there is no such list.
    """

    _START: Final = 64

    def __init__(self, nvml: Nvml, handle: Any, name: str) -> None:
        self._call = nvml.function(f"{name}_v3") or nvml.function(f"{name}_v2")
        self._kind = nvml.lib.c_nvmlProcessInfo_v2_t  # v3 of the call writes the v2 structure
        self._handle = handle
        self._count = ctypes.c_uint(0)
        self._array = (self._kind * self._START)()
        self.supported = self._call is not None

    def read(self) -> tuple[int, tuple[int, ...] | None]:
        """Return the code and the process ids; None where the list cannot be trusted."""
        if self._call is None:
            return FUNCTION_NOT_FOUND, None
        code = self._fill()
        if code == INSUFFICIENT_SIZE:
            self._array = (self._kind * (self._count.value * 2 + self._START))()
            code = self._fill()
        if code != SUCCESS:
            if code in CAPABILITY:
                self.supported = False
            return code, None
        pids = tuple(self._array[place].pid for place in range(self._count.value))
        return SUCCESS, (pids if all(plausible_pid(pid) for pid in pids) else None)

    def _fill(self) -> int:
        self._count.value = len(self._array)
        return self._call(self._handle, ctypes.byref(self._count), self._array)  # type: ignore[misc]


def plausible_pid(pid: int) -> bool:
    """Return whether a number can be a process id.

    Drivers 535.43 to 535.86 fill a larger structure under the same name; then memory sizes, 0
    or 2^32-1 stand where ids should be. A process need not be visible from here: in a container
    the ids are the host's.
    """
    return 0 < pid <= 1 << 22
