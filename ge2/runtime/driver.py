"""CUDA driver calls through cuda-bindings: the only module that imports it.

Handles (streams, functions, events, graphs) are plain integers at this module's surface. A failed
call raises LaunchFailed or OutOfMemory with the driver's own words.
"""

from __future__ import annotations

import ctypes
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache, lru_cache
from math import prod
from struct import Struct
from typing import Any

import numpy as np

from ..compiler.ir.size import as_example
from ..errors import EnvironmentUnusable, LaunchFailed, OutOfMemory
from ..launch.patch import Args
from ..launch.record import LaunchRecord, TensorMapSpec

STATIC_SMEM_LIMIT = 48 << 10
PORTABLE_CLUSTER = 8
STREAMS_KEPT = 256

_NO_DRIVER = "ge2 doctor tells more; models also run with --backend cpu or emulate"
_INSTALL = "Install with: pip install 'ge2[cuda13]'"


@cache
def api() -> Any:
    """Return the initialised cuda.bindings.driver module.

    Raises:
        EnvironmentUnusable: no cuda-bindings, no NVIDIA driver or no GPU.
    """
    try:
        from cuda.bindings import driver
    except ImportError as error:
        raise EnvironmentUnusable(f"cuda-bindings cannot be imported ({error})",
                                  hint=_INSTALL) from error
    try:
        (status,) = driver.cuInit(0)
    except RuntimeError as error:
        raise EnvironmentUnusable("there is no NVIDIA driver on this machine: this needs a GPU",
                                  hint=_NO_DRIVER) from error
    if status:
        raise EnvironmentUnusable(f"the NVIDIA driver does not start ({status.name})",
                                  hint=_NO_DRIVER)
    return driver


def is_available() -> bool:
    """Return whether there is a driver with at least one GPU."""
    try:
        return device_count() > 0
    except EnvironmentUnusable:
        return False


def device_count() -> int:
    """Return the number of visible GPUs."""
    return int(check(api().cuDeviceGetCount()))


def check(result: tuple[Any, ...], what: str = "") -> Any:
    """Return the values of a driver call.

    Raises:
        OutOfMemory, LaunchFailed: the call failed; the message names what and the driver's text.
    """
    status = result[0]
    if status:
        _fail(status, what)
    return result[1] if len(result) == 2 else result[1:]


def _fail(status: Any, what: str) -> None:
    driver = api()
    text = driver.cuGetErrorString(status)[1]
    message = f"{what or 'a CUDA call'} failed: {status.name}"
    detail = text.decode() if text else ""
    if status == driver.CUresult.CUDA_ERROR_OUT_OF_MEMORY:
        raise OutOfMemory(message, hint=detail)
    raise LaunchFailed(message, hint=detail)


@cache
def primary_context(index: int) -> Any:
    """Return the primary context of a device, the one that cupy and torch use too."""
    return check(api().cuDevicePrimaryCtxRetain(check(api().cuDeviceGet(index))),
                 f"opening GPU {index}")


def current_context() -> int:
    """Return the calling thread's context, 0 for none."""
    return int(check(api().cuCtxGetCurrent()))


@contextmanager
def on_device(index: int) -> Iterator[None]:
    """Make a device's primary context current for the block."""
    previous = enter_device(index)
    try:
        yield
    finally:
        leave_device(previous)


def enter_device(index: int) -> int | None:
    """Make a device current and return what leave_device needs to restore the previous one."""
    found = int(check(api().cuCtxGetCurrent()))
    if found == _context_handle(index):
        return None
    check(api().cuCtxSetCurrent(primary_context(index)))
    return found


class _Settled(threading.local):
    """Whether this thread was last seen with the context of the machine's only GPU."""

    yes = False


_settled = _Settled()


def settle(index: int) -> int | None:
    """enter_device that asks once per thread where there is one GPU, for the cheapest calls.

    cupy, torch and ge2 share its primary context, so nothing takes it away afterwards.
    """
    if _settled.yes:
        return None
    previous = enter_device(index)
    _settled.yes = previous is None and device_count() == 1
    return previous


@cache
def _context_handle(index: int) -> int:
    return int(primary_context(index))


def leave_device(previous: int | None) -> None:
    """Undo enter_device."""
    # NOTE: a thread that had no context keeps the primary one, so that the next call finds it.
    if previous:
        check(api().cuCtxSetCurrent(api().CUcontext(previous)))


def current_device() -> int | None:
    """Return the device of the calling thread's context, None for none."""
    return int(check(api().cuCtxGetDevice())) if current_context() else None


def pointer_device(address: int) -> int | None:
    """Return the device that an address lives on; None for host memory."""
    driver = api()
    kind = driver.CUpointer_attribute
    status, memory = driver.cuPointerGetAttribute(kind.CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address)
    if status or int(memory) != int(driver.CUmemorytype.CU_MEMORYTYPE_DEVICE):
        return None
    ordinal = driver.cuPointerGetAttribute(kind.CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, address)
    return int(check(ordinal))


# -- streams, events, memory ----------------------------------------------------------------------


def stream_create() -> int:
    """Return a new stream that does not synchronise with stream 0."""
    flags = api().CUstream_flags.CU_STREAM_NON_BLOCKING
    return int(check(api().cuStreamCreate(flags)))


@lru_cache(STREAMS_KEPT)
def stream_object(stream: int) -> Any:
    """Return the binding's object for a raw handle; it is cheaper to pass than the handle."""
    return api().CUstream(stream)


def stream_synchronize(stream: int) -> None:
    """Wait for a stream; an earlier kernel's fault surfaces here."""
    check(api().cuStreamSynchronize(stream), "waiting for the stream")


def is_capturing(stream: int) -> bool:
    """Return whether a stream is being captured into a graph."""
    driver = api()
    status, state = driver.cuStreamIsCapturing(stream)
    if status:
        _fail(status, "asking whether the stream is capturing")
    return int(state) == int(driver.CUstreamCaptureStatus.CU_STREAM_CAPTURE_STATUS_ACTIVE)


def captured_graph(stream: int) -> tuple[int, Any]:
    """Return (capture id, graph) of a capturing stream."""
    values = check(api().cuStreamGetCaptureInfo(stream), "reading the capture")
    return int(values[1]), values[2]


@contextmanager
def relaxed_capture() -> Iterator[None]:
    """Allow calls in this thread that a capture in progress would forbid (allocation)."""
    driver = api()
    mode = driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
    previous = check(driver.cuThreadExchangeStreamCaptureMode(mode))
    try:
        yield
    finally:
        check(driver.cuThreadExchangeStreamCaptureMode(previous))


class Event:
    """A point in a stream's work, without timing."""

    __slots__ = ("_api", "_handle")

    def __init__(self) -> None:
        self._api = api()
        flags = self._api.CUevent_flags.CU_EVENT_DISABLE_TIMING
        self._handle = check(self._api.cuEventCreate(flags))

    def record(self, stream: int) -> None:
        """Stand for all work that the stream has been given so far."""
        check(self._api.cuEventRecord(self._handle, stream), "recording an event")

    def is_done(self) -> bool:
        """Whether that work is finished."""
        (status,) = self._api.cuEventQuery(self._handle)
        if status == self._api.CUresult.CUDA_ERROR_NOT_READY:
            return False
        if status:
            _fail(status, "querying an event")
        return True

    def wait(self) -> None:
        """Wait for that work on the host; its stream need not exist any more."""
        check(self._api.cuEventSynchronize(self._handle), "waiting for an event")

    def hold(self, stream: int) -> None:
        """Make another stream wait for that work, on the device."""
        check(self._api.cuStreamWaitEvent(stream, self._handle, 0), "waiting for an event")

    def __del__(self) -> None:
        if hasattr(self, "_handle") and not sys.is_finalizing():
            self._api.cuEventDestroy(self._handle)


def allocate(nbytes: int) -> int:
    """Return the address of new device memory (256-byte aligned)."""
    with relaxed_capture():
        return int(check(api().cuMemAlloc(max(nbytes, 1)), f"allocating {nbytes} bytes"))


def free(address: int) -> None:
    """Release memory; waits for the device."""
    check(api().cuMemFree(address), "freeing memory")


def release_quietly(address: int) -> None:
    """Free memory from a finaliser: a dead context or driver is no news there."""
    if sys.is_finalizing():  # the process's memory goes with it
        return
    driver = api()
    with relaxed_capture():
        driver.cuMemFree(address)


def fill_zero(address: int, nbytes: int) -> None:
    """Set memory to zero, finished on return; allowed while another stream is capturing."""
    with relaxed_capture():
        stream = stream_create()
        check(api().cuMemsetD8Async(address, 0, nbytes, stream), "clearing memory")
        stream_synchronize(stream)
        check(api().cuStreamDestroy(stream))


def copy_async(target: int, source: int, nbytes: int, stream: int) -> None:
    """Copy between any two addresses (host or device) on a stream."""
    check(api().cuMemcpyAsync(target, source, nbytes, stream), f"copying {nbytes} bytes")


# -- launching ------------------------------------------------------------------------------------


def function(handle: int, smem: int, carveout: int = -1, cluster: int = 1) -> Any:
    """Return a launchable CUfunction that may use smem bytes of dynamic shared memory.

    Args:
        handle: of the function.
        smem: bytes.
        carveout: percent of the cache that is to be shared memory; -1 leaves it to the driver.
        cluster: blocks of a cluster; more than 8 are not for every GPU and have to be allowed.
    """
    driver = api()
    made, kind = driver.CUfunction(handle), driver.CUfunction_attribute
    if carveout >= 0:
        check(driver.cuFuncSetAttribute(
            made, kind.CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, carveout),
            "dividing cache and shared memory")
    if smem > STATIC_SMEM_LIMIT:
        check(driver.cuFuncSetAttribute(
            made, kind.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, smem),
            f"reserving {smem} bytes of shared memory")
    if cluster > PORTABLE_CLUSTER:
        check(driver.cuFuncSetAttribute(
            made, kind.CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 1),
            f"allowing clusters of {cluster} blocks")
    return made


class Launch:
    """A record with its function, its Args and a reused launch configuration.

    Not to be used by two threads at once: patch and launch share the Args.
    """

    __slots__ = ("_api", "_config", "_configured", "_function", "_name", "_params", "_pointer",
                 "_stream", "args", "grid", "record")

    def __init__(self, record: LaunchRecord, handle: int) -> None:
        self.record = record
        self.args = Args(record, encode_tensor_map)
        self._api = api()
        self._name = record.kernel.entry
        self._function = function(handle, record.smem, record.carveout, prod(record.cluster))
        self._pointer = (ctypes.c_void_p * 1)(self.args.address)
        self._params = ctypes.addressof(self._pointer)
        self.grid: tuple[int, int, int] = as_example(record.grid)
        self._config = _config(record, self.grid)
        self._configured = self.grid
        self._stream = 0

    def resize(self, grid: tuple[int, int, int]) -> None:
        """Launch with another grid from now on."""
        self.grid = grid

    def __call__(self, stream: int) -> None:
        """Launch with the addresses patched last."""
        if self.grid != self._configured:
            config, self._configured = self._config, self.grid
            config.gridDimX, config.gridDimY, config.gridDimZ = self.grid
        if stream != self._stream:
            self._config.hStream = self._api.CUstream(stream)
            self._stream = stream
        (status,) = self._api.cuLaunchKernelEx(self._config, self._function, self._params, 0)
        if status:
            _fail(status, f"launching {self._name}")

    def node_params(self) -> Any:
        """Return graph-node parameters that read the same Args."""
        record, params = self.record, self._api.CUDA_KERNEL_NODE_PARAMS()
        params.func = self._function
        params.gridDimX, params.gridDimY, params.gridDimZ = self.grid
        params.blockDimX, params.blockDimY, params.blockDimZ = record.block
        params.sharedMemBytes = record.smem
        params.kernelParams = self._params
        params.extra = 0
        return params


def _config(record: LaunchRecord, grid: tuple[int, int, int]) -> Any:
    driver = api()
    config = driver.CUlaunchConfig()
    config.gridDimX, config.gridDimY, config.gridDimZ = grid
    config.blockDimX, config.blockDimY, config.blockDimZ = record.block
    config.sharedMemBytes = record.smem
    config.hStream = driver.CUstream(0)
    found = list(attributes(record, driver.CUlaunchAttributeValue))
    if record.pdl:
        value = driver.CUlaunchAttributeValue()
        value.programmaticStreamSerializationAllowed = 1
        kinds = driver.CUlaunchAttributeID
        found.append((kinds.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION, value))
    attrs = []
    for kind, value in found:
        attr = driver.CUlaunchAttribute()
        attr.id, attr.value = kind, value
        attrs.append(attr)
    config.attrs = attrs
    config.numAttrs = len(attrs)
    return config


def attributes(record: LaunchRecord, value_type: Callable[[], Any]) -> Iterator[tuple[Any, Any]]:
    """Yield (attribute, value) of what a launch and a graph node of the record both need.

    Args:
        value_type: CUlaunchAttributeValue or CUkernelNodeAttrValue, two classes of one layout.
    """
    kinds = api().CUlaunchAttributeID
    if record.cluster != (1, 1, 1):
        value = value_type()
        value.clusterDim.x, value.clusterDim.y, value.clusterDim.z = record.cluster
        yield kinds.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, value
    if record.cooperative:
        value = value_type()
        value.cooperative = 1
        yield kinds.CU_LAUNCH_ATTRIBUTE_COOPERATIVE, value


# -- tensor maps ----------------------------------------------------------------------------------

_MAP_DTYPES = {"f32": "FLOAT32", "tf32": "TFLOAT32", "f16": "FLOAT16", "bf16": "BFLOAT16",
               "f64": "FLOAT64", "i32": "INT32", "i64": "INT64", "u8": "UINT8", "i8": "UINT8",
               "bool": "UINT8", "f8e4m3": "UINT8", "f8e5m2": "UINT8"}


def encode_tensor_map(spec: TensorMapSpec, address: int) -> bytes:
    """Return the 128 bytes of a TMA descriptor.

    Raises:
        LaunchFailed: the driver refuses the combination (alignment of address or strides, box).
    """
    encoder = _plain_encoder(spec.dtype, spec.box, spec.swizzle)
    made = encoder(spec.dims, spec.strides, address) if encoder else None
    return made or _encode_by_bindings(spec, address)


PlainEncoder = Callable[[tuple[int, ...], tuple[int, ...], int], "bytes | None"]


@cache
def _plain_encoder(dtype: str, box: tuple[int, ...], swizzle: int) -> PlainEncoder | None:
    """Return the driver's own function with all but the tensor filled in; None where it is not.

    New sizes need new maps, and the bindings take several times as long as the function. The
    result is None where the driver refuses; the bindings then say why.
    """
    function = _encode_function()
    if function is None:
        return None
    rank, kinds = len(box), [int(kind) for kind in _map_kinds(dtype, swizzle)]
    boxes, ones = (ctypes.c_uint32 * rank)(*box), (ctypes.c_uint32 * rank)(*[1] * rank)
    numbers = Struct(f"{2 * rank - 1}Q")  # extents, then pitches
    storage: Any = (ctypes.c_char * (64 + 128 + numbers.size))()
    made = -ctypes.addressof(storage) % 64
    start = ctypes.addressof(storage) + made
    lock, pack = threading.Lock(), numbers.pack_into
    before = start, kinds[0], rank
    after = (start + 128, start + 128 + 8 * rank, ctypes.addressof(boxes),
             ctypes.addressof(ones), *kinds[1:])

    def encode(dims: tuple[int, ...], strides: tuple[int, ...], address: int) -> bytes | None:
        with lock:
            pack(storage, made + 128, *dims, *strides)
            status = function(*before, address, *after)
            descriptor: bytes = storage[made:made + 128]
        return None if status else descriptor

    encode.kept = boxes, ones  # type: ignore[attr-defined]  # after has but their addresses

    return encode


@cache
def _encode_function() -> Any:
    try:
        function = ctypes.CDLL("libcuda.so.1").cuTensorMapEncodeTiled
    except (OSError, AttributeError):
        return None
    pointer, number = ctypes.c_void_p, ctypes.c_int
    function.restype = number
    function.argtypes = [pointer, number, ctypes.c_uint32, pointer, pointer, pointer, pointer,
                         pointer, number, number, number, number]
    return function


def _map_kinds(dtype: str, swizzle: int) -> tuple[Any, Any, Any, Any, Any]:
    """Return the enumerators of element type, interleave, swizzle, promotion and fill."""
    driver = api()
    return (getattr(driver.CUtensorMapDataType, f"CU_TENSOR_MAP_DATA_TYPE_{_MAP_DTYPES[dtype]}"),
            driver.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE,
            getattr(driver.CUtensorMapSwizzle,
                    f"CU_TENSOR_MAP_SWIZZLE_{f'{swizzle}B' if swizzle else 'NONE'}"),
            driver.CUtensorMapL2promotion.CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
            driver.CUtensorMapFloatOOBfill.CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE)


def _encode_by_bindings(spec: TensorMapSpec, address: int) -> bytes:
    driver = api()
    kind, *kinds = _map_kinds(spec.dtype, spec.swizzle)
    rank = len(spec.dims)
    made = check(driver.cuTensorMapEncodeTiled(
        kind, rank, address, _u64(spec.dims), _u64(spec.strides),
        [driver.cuuint32_t(v) for v in spec.box], [driver.cuuint32_t(1)] * rank, *kinds),
        f"encoding a tensor map of {spec.dtype} dims {spec.dims} strides {spec.strides} "
        f"box {spec.box}")
    return np.array([int(word) for word in made.opaque], np.uint64).tobytes()


def _u64(values: Sequence[int]) -> list[Any]:
    return [api().cuuint64_t(v) for v in values]
