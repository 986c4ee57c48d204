"""The object that stands where ``libnvidia-ml.so`` stands, below the real pynvml.

Each attribute is a plain function with the C name; pynvml calls it with real ctypes arguments and
gets an NVML return code. State comes from a `DeviceProvider`; limits and locks set through NVML
are kept here and reported to it. A symbol nobody implements answers NOT_SUPPORTED; names in
`absent` are missing altogether, as in an older driver. Event sets are not offered yet.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any, Final, TypeVar

import pynvml

from collector.simulator import cabi
from collector.simulator.device import DeviceInfo, DeviceProvider, Integrals, Settable

HANDLE_BASE: Final = 0x7000_0000
HANDLE_STEP: Final = 0x100
MW_PER_W: Final = 1_000

Entry = Callable[..., Any]
_ENTRIES: Final[dict[str, tuple[Entry, bool]]] = {}
_F = TypeVar("_F", bound=Entry)


def entry(*names: str) -> Callable[[_F], _F]:
    """Return a decorator that registers a function under C names; it needs no device."""
    return _register(names, per_device=False)


def device_entry(*names: str) -> Callable[[_F], _F]:
    """Return a decorator for functions whose first C argument is a device handle."""
    return _register(names, per_device=True)


def _register(names: Iterable[str], *, per_device: bool) -> Callable[[_F], _F]:
    def remember(function: _F) -> _F:
        for name in names:
            _ENTRIES[name] = (function, per_device)
        return function

    return remember


class StandIn:
    """A driver library made of Python.

    Args:
        provider: what the devices are doing.
        root: whether setters are allowed.
        latency_s: how long each call on a device takes.
        absent: symbols that this driver lacks.

    Attributes:
        settables: per GPU, what was set, and which fault it shows.
        calls: how often each C function was called.
    """

    def __init__(
        self,
        provider: DeviceProvider,
        *,
        root: bool = False,
        latency_s: float = 0.0,
        absent: Iterable[str] = (),
    ) -> None:
        from collector.simulator import entry_device, entry_fields, entry_gpm, entry_set

        del entry_device, entry_fields, entry_gpm, entry_set  # imported for their registrations
        self.provider = provider
        self.root = root
        self.latency_s = latency_s
        self.absent = frozenset(absent)
        self.initialised = 0
        self.calls: dict[str, int] = {}
        self.samples: dict[int, tuple[int, Integrals] | None] = {}
        self.settables = [
            Settable(limit_mw=round(info.profile.limit_default_w.value * MW_PER_W))
            for info in provider.devices
        ]
        for name, (function, per_device) in _ENTRIES.items():
            if name not in self.absent:
                bind = self._bind_device if per_device else self._bind
                setattr(self, name, bind(name, function))

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("nvml") or name in self.absent:
            raise AttributeError(name)

        def not_supported(*_arguments: Any) -> int:
            return self.enter(name) or cabi.NOT_SUPPORTED

        setattr(self, name, not_supported)
        return not_supported

    def enter(self, name: str) -> int:
        """Return an error code if the library is not initialised; counts the call."""
        self.calls[name] = self.calls.get(name, 0) + 1
        return cabi.SUCCESS if self.initialised else cabi.UNINITIALIZED

    def index_of(self, handle: Any) -> int:
        """Return the index behind a handle, or -1."""
        offset, rest = divmod(cabi.handle_value(handle) - HANDLE_BASE, HANDLE_STEP)
        return offset if rest == 0 and 0 <= offset < len(self.settables) else -1

    def info(self, index: int) -> DeviceInfo:
        """Return the identity of GPU `index`."""
        return self.provider.devices[index]

    def _bind(self, name: str, function: Entry) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            return self.enter(name) or function(self, *arguments)

        def call_always(*arguments: Any) -> Any:
            self.enter(name)
            return function(self, *arguments)

        return call_always if name in _WITHOUT_INIT else call

    def _bind_device(self, name: str, function: Entry) -> Callable[..., int]:
        def call(handle: Any, *arguments: Any) -> int:
            code = self.enter(name)
            if code:
                return code
            index = self.index_of(handle)
            if index < 0:
                return cabi.INVALID_ARGUMENT
            if self.latency_s:
                time.sleep(self.latency_s)
            return self.settables[index].fault or int(function(self, index, *arguments))

        return call


_WITHOUT_INIT: Final = frozenset(
    {
        "nvmlInit",
        "nvmlInit_v2",
        "nvmlInitWithFlags",
        "nvmlErrorString",
        "nvmlSystemGetDriverVersion",
        "nvmlSystemGetNVMLVersion",
        "nvmlSystemGetCudaDriverVersion",
        "nvmlSystemGetCudaDriverVersion_v2",
    }
)


def install(standin: StandIn) -> None:
    """Put `standin` below pynvml; whatever pynvml had cached of a driver before is dropped."""
    _swap(standin)


def uninstall() -> None:
    """Take any stand-in away; pynvml looks for the real library again."""
    _swap(None)


def _swap(library: StandIn | None) -> None:
    with pynvml.libLoadLock:
        pynvml.nvmlLib = library
        pynvml._nvmlGetFunctionPointer_cache.clear()
        pynvml._nvmlLib_refcount = 0
