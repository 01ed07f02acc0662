"""Server of a foreign contender: a trainer in an environment that has no dgbench.

One file that needs the standard library and numpy alone, from Python 3.6 on. The driver
(`foreign.py`) starts it with the interpreter of that environment. A message is a JSON object behind
its length in four bytes, on a socket; arrays lie in two files without names that both sides map,
`inputs` of the driver and `results` of the server.
"""

import contextlib
import ctypes
import importlib
import json
import mmap
import os
import platform
import signal
import socket
import struct
import sys
import time
import traceback

PROTOCOL = 3
"""Version of the messages; both sides must speak the same."""

MAX_BYTES = 1 << 20
"""Most bytes of a message."""

MAX_TEXT = 2000
"""Most characters of an error's text."""

NAMED = ("numpy", "torch", "tensorflow", "jax", "torch_geometric", "dgl")
"""Packages whose versions the driver is told, where the contender has loaded them."""


def send(sock: socket.socket, message: dict) -> int:
    """Send a message; return its bytes."""
    data = json.dumps(message).encode()
    sock.sendall(struct.pack(">I", len(data)) + data)
    return 4 + len(data)


def receive(sock: socket.socket, until: float = float("inf")) -> tuple:
    """Return the next message and its bytes; (None, 0) where the other side is gone.

    Args:
        until: end of the wait on `time.monotonic`.

    Raises:
        ValueError: it is no message. TimeoutError: none came in time.
    """
    data, size = b"", None
    while size is None or len(data) < 4 + size:
        left = until - time.monotonic()
        if left <= 0:
            raise TimeoutError
        sock.settimeout(left if left < 1e6 else None)
        part = sock.recv(1 << 16)
        if not part:
            return None, 0
        data += part
        if size is None and len(data) >= 4:
            size = struct.unpack(">I", data[:4])[0]
            if not 0 < size <= MAX_BYTES:
                raise ValueError(f"a message of {size:,} bytes, 1 to {MAX_BYTES:,} are allowed")
    if len(data) > 4 + size:
        raise ValueError("more than one message")
    try:
        message = json.loads(data[4:].decode())
    except RecursionError:
        raise ValueError("JSON that is nested without end") from None
    except ValueError as error:
        raise ValueError(f"what is no JSON ({error})") from None
    if not isinstance(message, dict):
        raise ValueError(f"a {type(message).__name__} instead of an object")
    return message, 4 + size


def view(memory: mmap.mmap, place: list):
    """Array of [dtype, shape, offset] in a mapped file, without a copy."""
    import numpy

    dtype, shape, offset = place
    return numpy.ndarray(tuple(shape), dtype, memory, offset)


class Task:
    """Training task as a foreign contender sees it; its arrays can only be read.

    Attributes:
        kind: `frames` of snapshots, a whole `timeline`, or a `stream` of events.
        workload: settings by name (`model`, `hidden_dim`, `lr`, ...).
        parameters: first values, float32, by the shared model's names.
        num_frames: frames of an epoch.
        device, threads, switches: as the driver was asked for them.
        features: float32[T, N, F]; None of a stream.
        targets: [T, N] or None. A frame that ends at snapshot t predicts row t + 1; step t of a
            timeline is scored against row t, of numbers or (task `class`) of classes.
        src, dst, t, negatives: of a stream, by event.
        node_feat, edge_feat: of a stream, float32 by vertex and by event, or None.
    """

    def __init__(self, told: dict, arrays: dict) -> None:
        self.kind, self.workload = told["kind"], told["workload"]
        self.num_frames = len(arrays["frames"])
        self.device, self.threads = told["device"], told["threads"]
        self.switches = told["switches"]
        self.features, self.targets = arrays.get("features"), arrays.get("targets")
        self.src, self.dst, self.t = arrays.get("src"), arrays.get("dst"), arrays.get("t")
        self.negatives = arrays.get("negatives")
        self.node_feat, self.edge_feat = arrays.get("node_feat"), arrays.get("edge_feat")
        self.parameters = {
            name[len("parameters/") :]: array
            for name, array in arrays.items()
            if name.startswith("parameters/")
        }
        self._arrays = arrays

    def frame(self, number: int) -> range:
        """Snapshots of a frame, all steps of a timeline, or the events of a stream's batch."""
        first, last = self._arrays["frames"][number]
        return range(int(first), int(last))

    def snapshot(self, t: int) -> tuple:
        """Rows of a snapshot (indptr int64[N + 1], indices int32[E], values float32[E] or None).

        A row is a destination, a column a source; there are no self loops.
        """
        first, last = self._arrays["offsets"][t : t + 2]
        values = self._arrays.get("values")
        return (
            self._arrays["indptr"][t],
            self._arrays["indices"][first:last],
            None if values is None else values[first:last],
        )

    def pairs(self, t: int) -> tuple:
        """Pairs int64[2, P] (source, destination) that step t of a timeline is scored on (task
        `link`), and their labels int64[P]."""
        first, last = self._arrays["pair_offsets"][t : t + 2]
        return self._arrays["pairs"][:, first:last], self._arrays["labels"][first:last]


class Server:
    """Answers of a contender, one method for each call of the driver."""

    def __init__(self, open_trainer: object, inputs: int, results: int) -> None:
        self._open_trainer = open_trainer
        self._files = inputs, results
        self.trainer = None

    def open(self, told: dict) -> dict:
        """Open the contender's trainer; tells the shapes of what it trains."""
        inputs, results = (
            mmap.mmap(file, 0, access=access)
            for file, access in zip(self._files, (mmap.ACCESS_READ, mmap.ACCESS_WRITE))  # noqa: B905
        )
        arrays = {name: view(inputs, place) for name, place in told["inputs"].items()}
        places = {name: view(results, place) for name, place in told["results"].items()}
        self._output = places.pop("output")
        self._values, self._first, self._second = (
            {n[len(prefix) :]: place for n, place in places.items() if n.startswith(prefix)}
            for prefix in ("values/", "first/", "second/")
        )
        self.trainer = self._open_trainer(Task(told, arrays))
        state = self.trainer.state()
        return {"state": {name: list(value.shape) for name, value in state.items()}}

    def prepare(self, told: dict) -> dict:
        """Work that is done once."""
        if hasattr(self.trainer, "prepare"):
            self.trainer.prepare()
        return {}

    def step(self, told: dict) -> dict:
        """Train on a frame."""
        loss = self.trainer.step(told["frame"])
        return {"loss": float(loss.detach() if hasattr(loss, "detach") else loss)}

    def evaluate(self, told: dict) -> dict:
        """Write the output of a frame."""
        value = self.trainer.evaluate(told["frame"])
        self._write({"output": value}, {"output": self._output[: told["rows"]]})
        return {}

    def gradients(self, told: dict) -> dict:
        """Write the gradients of a frame's loss."""
        self._write(self.trainer.gradients(told["frame"]), self._values)
        return {}

    def state(self, told: dict) -> dict:
        """Write the parameters."""
        self._write(self.trainer.state(), self._values)
        return {}

    def moments(self, told: dict) -> dict:
        """Write Adam's moments; tells whether the contender has any."""
        if not hasattr(self.trainer, "moments"):
            return {"known": False}
        found = self.trainer.moments()
        self._write({name: pair[0] for name, pair in found.items()}, self._first)
        self._write({name: pair[1] for name, pair in found.items()}, self._second)
        return {"known": True}

    def counters(self, told: dict) -> dict:
        """Tell which work reached a CUDA device; counters stand in every answer."""
        return {"cuda": _cuda_work()}

    def close(self, told: dict) -> dict:
        """Give free what the trainer took."""
        if hasattr(self.trainer, "close"):
            self.trainer.close()
        sys.stdout.flush()  # the driver ends this process when it has the answer
        sys.stderr.flush()
        return {}

    def totals(self) -> dict:
        """Counters so far."""
        return {str(k): int(v) for k, v in getattr(self.trainer, "counters", {}).items()}

    def _write(self, values: dict, places: dict) -> None:
        """Copy arrays or tensors to their places among the results."""
        import numpy

        if set(values) != set(places):
            odd = ", ".join(sorted(set(values) ^ set(places)))
            raise ValueError(f"other names than those of the model's parameters: {odd}")
        for name, place in places.items():
            value = values[name]
            if hasattr(value, "detach"):  # a tensor of torch
                value = value.detach().cpu().numpy()
            value = numpy.asarray(value)
            if value.shape != place.shape:
                raise ValueError(f"'{name}' has the shape {value.shape}, not {place.shape}")
            numpy.copyto(place, value, casting="same_kind")


def _cuda_work() -> dict:
    """Allocations on all devices, as torch's allocator counts them; {} where there are none."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_available() or not torch.cuda.is_initialized():
        return {}
    stats = [torch.cuda.memory_stats(one) for one in range(torch.cuda.device_count())]
    allocations = sum(int(one.get("allocation.all.allocated", 0)) for one in stats)
    peak = sum(int(one.get("allocated_bytes.all.peak", 0)) for one in stats)
    return {"allocations": allocations, "peak_bytes": peak} if allocations else {}


def _told(error: BaseException) -> dict:
    """An error as a message; its traceback goes to the log."""
    traceback.print_exc()
    sys.stderr.flush()
    return {"error": {"kind": type(error).__name__, "text": str(error)[:MAX_TEXT]}}


def _end_with_driver() -> None:
    """Have Linux end this process when the driver ends; elsewhere the closed socket does."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def serve(sock: socket.socket, inputs: int, results: int, module: str, folder: str) -> None:
    """Greet the driver and answer its calls until it closes or is gone."""
    greeting = {"protocol": PROTOCOL, "versions": {"Python": platform.python_version()}}
    server = None
    try:
        import numpy  # noqa: F401 - a lack of it is told before the contender's

        if folder:
            sys.path.insert(0, folder)
        found = importlib.import_module(module)
        if not hasattr(found, "open_trainer"):
            raise ImportError(f"module '{module}' has no function open_trainer(task)")
        server = Server(found.open_trainer, inputs, results)
        loaded = {name: getattr(sys.modules.get(name), "__version__", None) for name in NAMED}
        greeting["versions"].update({k: str(v) for k, v in loaded.items() if v})
    except BaseException as error:
        greeting.update(_told(error))
    send(sock, greeting)
    while server is not None:
        request, _ = receive(sock)
        if request is None:
            return
        try:
            begin = time.perf_counter()
            reply = getattr(server, request["call"])(request)
            reply["seconds"] = time.perf_counter() - begin
            reply["counters"] = server.totals()
        except BaseException as error:  # SystemExit of a contender, too
            reply = _told(error)
        send(sock, reply)
        if request["call"] == "close":
            return


def main(words: list) -> None:
    """Serve on inherited descriptors: SOCKET INPUTS RESULTS MODULE FOLDER."""
    _end_with_driver()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the driver decides when to stop
    numbers = [int(word) for word in words[:3]]
    for number in numbers:
        os.set_inheritable(number, False)
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM, fileno=numbers[0])
    serve(sock, numbers[1], numbers[2], words[3], words[4])


if __name__ == "__main__":
    main(sys.argv[1:])
