"""Patching: addresses land in the holes of an Args struct and nowhere else."""

from __future__ import annotations

import struct

import numpy as np

from ge2.launch.patch import ARGS_ALIGN, Args, slots_of
from ge2.launch.record import (
    SEMAPHORES,
    WORKSPACE,
    ArgsBuilder,
    KernelSource,
    LaunchRecord,
    Reloc,
    TensorMapSpec,
    args_dtype,
)

SOURCE = KernelSource("t.cu.j2", (), "t")


def _record(args: bytes, *relocs: Reloc, maps: tuple[TensorMapSpec, ...] = ()) -> LaunchRecord:
    return LaunchRecord(SOURCE, (1, 1, 1), (32, 1, 1), args, relocs, tensor_maps=maps)


def _no_maps(spec: TensorMapSpec, address: int) -> bytes:
    raise AssertionError("no tensor map expected")


def test_addresses_with_addends_go_to_their_offsets() -> None:
    record = _record(bytes(range(40)), Reloc(8, 1, 100), Reloc(24, WORKSPACE, 16),
                     Reloc(32, SEMAPHORES))
    args = Args(record, _no_maps)
    args.patch([1000, 2000], 3000, 4000)
    words = struct.unpack("<5Q", args.tobytes())
    assert words[1] == 2100 and words[3] == 3016 and words[4] == 4000
    assert args.tobytes()[:8] == bytes(range(8)) and args.tobytes()[16:24] == bytes(range(16, 24))


def test_an_absent_buffer_stays_null_whatever_its_addend() -> None:
    args = Args(_record(bytes(8), Reloc(0, 0, 64)), _no_maps)
    args.patch([0])
    assert args.tobytes() == bytes(8)


def test_patching_again_replaces_the_addresses() -> None:
    args = Args(_record(bytes(8), Reloc(0, 0, 4)), _no_maps)
    args.patch([100])
    args.patch([200])
    assert struct.unpack("<Q", args.tobytes()) == (204,)


def test_tensor_maps_are_encoded_for_the_patched_address() -> None:
    spec = TensorMapSpec(64, 1, 32, "f16", (8, 8), (16,), (8, 8))
    seen = []

    def encode(asked: TensorMapSpec, address: int) -> bytes:
        seen.append((asked, address))
        return bytes([7]) * 128

    args = Args(_record(bytes(192), maps=(spec,)), encode)
    args.patch([0, 4096])
    assert seen == [(spec, 4128)]
    assert args.tobytes() == bytes(64) + bytes([7]) * 128
    assert args.address % ARGS_ALIGN == 0


def test_args_of_odd_size_keep_their_bytes() -> None:
    dtype = args_dtype(("x", "u8"), ("n", "i4"))
    packed, relocs = ArgsBuilder(dtype, {"n": 5}, {"x": (0, 0)}).pack()
    args = Args(_record(packed, *relocs), _no_maps)
    args.patch([77])
    block = np.frombuffer(args.tobytes(), dtype)[0]
    assert (block["x"], block["n"]) == (77, 5)


def test_slots_of_a_record_are_those_its_holes_name() -> None:
    spec = TensorMapSpec(64, 2, 0, "f32", (8, 8), (32,), (8, 8))
    assert slots_of(_record(bytes(192), Reloc(0, 0), Reloc(8, WORKSPACE), maps=(spec,))) == {
        0, 2, WORKSPACE}
