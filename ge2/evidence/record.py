"""What is remembered: one Record per measured candidate, one Decision per tuned problem."""

from __future__ import annotations

from typing import Any

import msgspec

SCHEMA = 1

OK = "ok"
FAILED_STATES = ("wrong", "compile_error", "compile_timeout", "launch_error", "timeout",
                 "unsupported", "crashed")
STATES = (OK, *FAILED_STATES)


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of one variant on one problem on one device.

    Attributes:
        problem: key of the problem. op_type, shape: the problem for a person.
        variant: id of the variant. numerics: its accumulation order.
        device: key of the device.
        cubin: digest of the compiled kernels; "" where they did not compile.
        sources: digest of the rendered sources: equal sources need no compile to be recognised.
        state: "ok", or what went wrong. reason: that in words.
        time_us: median of the deciding measurement, microseconds; 0 unless ok.
        spread: interquartile range over median. n: samples. samples: microseconds each.
        cold: whether operands came from memory (else from L2).
        other_us: median with the caches in the other state; 0 where not measured.
        predicted_us: of the uncorrected cost model; time_us over it corrects later ones.
        gbps, tflops, roofline: rates, and the device's least time over the measured one.
        registers, smem, spills, occupancy: of the kernel that takes longest to describe: the first.
        max_abs, ulp: error against float64; ulp in units of the output dtype at its scale.
        driver, nvrtc, ge2: versions. sm_mhz, mem_mhz, throttle: clocks, where they can be read.
        transactions, hit_rate: from a profiler, where one ran; -1 where not.
        compile_ms: time in the compiler. date: seconds since 1970, UTC.
    """

    problem: str
    op_type: str
    shape: str
    variant: str
    device: str
    cubin: str
    state: str
    numerics: str = ""
    sources: str = ""
    reason: str = ""
    time_us: float = 0.0
    spread: float = 0.0
    n: int = 0
    samples: tuple[float, ...] = ()
    cold: bool = True
    other_us: float = 0.0
    predicted_us: float = 0.0
    gbps: float = 0.0
    tflops: float = 0.0
    roofline: float = 0.0
    registers: int = 0
    smem: int = 0
    spills: int = 0
    occupancy: float = 0.0
    max_abs: float = 0.0
    ulp: float = 0.0
    transactions: float = -1.0
    hit_rate: float = -1.0
    driver: str = ""
    nvrtc: str = ""
    ge2: str = ""
    sm_mhz: int = 0
    mem_mhz: int = 0
    throttle: str = ""
    compile_ms: float = 0.0
    date: float = 0.0

    @property
    def key(self) -> tuple[str, str, str, str]:
        """What makes a record unique."""
        return self.problem, self.variant, self.device, self.cubin

    @property
    def is_ok(self) -> bool:
        """Whether the candidate was right and timed."""
        return self.state == OK


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """Which variant tuning chose for a problem on a device.

    Attributes:
        variant, cubin, sources, numerics: of the chosen one.
        default: what the selector chooses without evidence.
        time_us, default_us: measured against each other, interleaved.
        noise: relative uncertainty of that comparison.
        strict: whether only the default's numerics id was allowed.
        tried, valid: candidates looked at, and those that were right.
    """

    problem: str
    op_type: str
    shape: str
    device: str
    variant: str
    cubin: str
    sources: str = ""
    numerics: str = ""
    default: str = ""
    time_us: float = 0.0
    default_us: float = 0.0
    noise: float = 0.0
    cold: bool = True
    strict: bool = False
    strategy: str = ""
    tried: int = 0
    valid: int = 0
    space: int = 0
    driver: str = ""
    nvrtc: str = ""
    ge2: str = ""
    date: float = 0.0

    @property
    def key(self) -> tuple[str, str]:
        """What makes a decision unique."""
        return self.problem, self.device

    @property
    def gain(self) -> float:
        """Default time over chosen time, minus one."""
        return self.default_us / self.time_us - 1.0 if self.time_us else 0.0


Item = Record | Decision


def replaces(item: Item, known: Item) -> bool:
    """Whether an item takes the place of one with its key: it is as new, and does not know less.

    A candidate that was only checked leaves the times of an earlier measurement of the same cubin.
    """
    if item.date < known.date:
        return False
    return not (isinstance(item, Record) and isinstance(known, Record)
                and item.is_ok and item.time_us == 0.0 < known.time_us)


def as_plain(item: Item) -> dict[str, Any]:
    """Return plain values, for JSON."""
    plain: dict[str, Any] = msgspec.to_builtins(item)
    return plain
