"""The process in which candidates run: when its CUDA context dies it is replaced.

Messages are pickles with a length before them, over pipes of parent and child only. The child never
sees Ctrl-C; it ends when the parent closes the pipe or dies.
"""

from __future__ import annotations

import json
import os
import pickle
import queue
import signal
import struct
import subprocess
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import IO, Any

from .. import paths
from ..errors import EnvironmentUnusable, Ge2Error


@dataclass(frozen=True, slots=True)
class Target:
    """What a worker runs candidates on.

    Attributes:
        kind: "cuda" or "emulate". index: of the GPU. arch: of the emulated device.
        limit: (absolute, relative) error bounds instead of those by dtype.
        noise: of emulated times, relative.
    """

    kind: str = "cuda"
    index: int = 0
    arch: str = "sm_90a"
    limit: tuple[float, float] | None = None
    noise: float = 0.002


class WorkerLost(Exception):
    """The worker died or was ended because it took too long.

    Attributes:
        timed_out: whether it was too slow.
    """

    def __init__(self, message: str, *, timed_out: bool) -> None:
        super().__init__(message)
        self.timed_out = timed_out


class Worker:
    """One child process.

    Args:
        target: what it opens.

    Raises:
        EnvironmentUnusable: it does not start or cannot open the device.
    """

    def __init__(self, target: Target, *, start_seconds: float = 120.0) -> None:
        script = ("import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
                  f"from {__name__} import serve; serve()")
        self._process = subprocess.Popen(
            [sys.executable, "-c", script, json.dumps(sys.path)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        try:
            self.request("open", start_seconds, target=target,
                         folders=[str(f) for f in paths.user_kernel_dirs()])
        except WorkerLost as error:
            raise EnvironmentUnusable(f"the tuning worker does not start: {error}") from error
        except BaseException:
            self.close()
            raise

    def request(self, verb: str, seconds: float, **arguments: Any) -> Any:
        """Send a request and return the answer.

        Raises:
            WorkerLost: no answer within the time, or the process died; it is of no more use.
            Ge2Error: what the request raised there.
        """
        assert self._process.stdin and self._process.stdout
        late = threading.Event()

        def end() -> None:
            late.set()
            self._process.kill()

        timer = threading.Timer(seconds, end)
        timer.start()
        try:
            send(self._process.stdin, (verb, arguments))
            answer = receive(self._process.stdout)
        except (OSError, EOFError, pickle.UnpicklingError):
            answer = None
        except BaseException:
            self.close()
            raise
        finally:
            timer.cancel()
        if answer is None:
            self.close()
            code = self._process.returncode
            raise WorkerLost(f"no answer within {seconds:g} s" if late.is_set()
                             else f"its process ended with code {code}", timed_out=late.is_set())
        state, value = answer
        if state == "error":
            raise value
        return value

    def close(self) -> None:
        """End the process."""
        process = self._process
        process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout):
            if stream:
                try:
                    stream.close()
                except OSError:
                    continue


def send(stream: IO[bytes], message: Any) -> None:
    """Write one message."""
    payload = pickle.dumps(message)
    stream.write(struct.pack("<Q", len(payload)) + payload)
    stream.flush()


def receive(stream: IO[bytes]) -> Any:
    """Return the next message; None at the end."""
    head = stream.read(8)
    if len(head) < 8:
        return None
    (length,) = struct.unpack("<Q", head)
    payload = stream.read(length)
    return pickle.loads(payload) if len(payload) == length else None


# -- in the child ---------------------------------------------------------------------------------


def serve() -> None:
    """Answer requests on stdin until it closes; whatever else prints goes to stderr."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    replies = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    requests: queue.Queue[tuple[str, Mapping[str, Any]]] = queue.Queue()
    threading.Thread(target=_read, args=(requests,), daemon=True).start()
    bench: Any = None
    while True:
        verb, arguments = requests.get()
        try:
            if verb == "open":
                bench = _open(**arguments)
                answer: Any = ("ok", bench.device.profile)
            else:
                answer = ("ok", getattr(bench, verb)(**arguments))
        except Ge2Error as error:
            answer = ("error", _plain(error))
        except MemoryError:
            answer = ("error", Ge2Error("the host ran out of memory"))
        except Exception as error:  # whatever a library raises costs a candidate, not the search
            answer = ("error", Ge2Error(f"{type(error).__name__}: {error}"))
        send(replies, answer)


def _read(requests: queue.Queue[tuple[str, Mapping[str, Any]]]) -> None:
    """Take requests; when the parent is gone, end at once, also out of a running kernel."""
    while (message := receive(sys.stdin.buffer)) is not None:
        requests.put(message)
    os._exit(0)


def _plain(error: Ge2Error) -> Ge2Error:
    """Return the error as one that pickles."""
    plain = Ge2Error(str(error))
    plain.exit_code = error.exit_code
    return plain


def _open(target: Target, folders: list[str]) -> Any:
    from pathlib import Path

    from ..runtime.device import EmulatedDevice, cuda_device
    from .bench import Bench
    from .verify import Tolerance

    for folder in folders:
        paths.add_kernel_dir(Path(folder))
    limit = None if target.limit is None else Tolerance(*target.limit)
    if target.kind == "cuda":
        return Bench(cuda_device(target.index), limit=limit)
    from .emulated import EmulatedClock

    bench = Bench(EmulatedDevice(target.arch), limit=limit)
    bench.use_clock(EmulatedClock(bench, target.noise))
    return bench
