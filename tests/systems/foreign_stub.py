"""Server that breaks the protocol in the way that its module's name says: a contender of a test.

Run by path, as the real one is; `FOLDER` is where the real one lies, whose messages it speaks.
"""

import os
import signal
import socket
import struct
import subprocess
import sys
import time

sys.path.insert(0, sys.argv[5])
import foreign_server as real

HOW = sys.argv[4]
FINE = {"loss": 1.0, "seconds": 0.0, "counters": {"edges": 3}}
GREETING = {"protocol": real.PROTOCOL, "versions": {"Python": "3"}}
GREETINGS = {"version": {**GREETING, "protocol": 99}, "unversioned": {}}
RAW = {
    "text": b"\0\0\0\4oops",
    "binary": b"\0\0\0\2\xff\xfe",
    "huge": struct.pack(">I", 1 << 30),
    "empty": struct.pack(">I", 0),
    "list": b"\0\0\0\2[]",
    "nested": struct.pack(">I", 200_000) + b"[" * 200_000,
    "twice": 2 * (b"\0\0\0\2{}"),
    "half": struct.pack(">I", 100) + b"{",
}
STEPS = {
    "words": {**FINE, "loss": "low"},
    "nothing": {},
    "clock": {**FINE, "seconds": 1e6},
    "back in time": {**FINE, "seconds": -1.0},
    "no counters": {"loss": 1.0, "seconds": 0.0},
    "half a count": {**FINE, "counters": {"edges": 1.5}},
    "count that falls": {**FINE, "counters": {"edges": 2}},
    "count that goes": {**FINE, "counters": {}},
    "memory": {"error": {"kind": "MemoryError", "text": "no more"}},
    "error of its own": {"error": "no"},
}
held = []


def step(sock):
    """Answer a step as the name says, or not at all."""
    if HOW in RAW:
        sock.sendall(RAW[HOW])
        if HOW == "half":
            os._exit(0)
    elif HOW == "hang":
        time.sleep(600)
    elif HOW == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    elif HOW == "exit":
        os._exit(3)
    elif HOW == "burn":
        while time.process_time() < 0.3:
            pass
        held.append(bytearray(b"x") * (96 << 20))
        real.send(sock, FINE)
    else:
        real.send(sock, STEPS.get(HOW, FINE))


def main():
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM, fileno=int(sys.argv[1]))
    if HOW == "parent":
        subprocess.Popen(["sleep", "600"])
    real.send(sock, GREETINGS.get(HOW, GREETING))
    for _ in range(1000):
        request, _ = real.receive(sock)
        if request is None:
            return
        if request["call"] == "open":
            places = request["results"]
            state = {n[7:]: one[1] for n, one in places.items() if n.startswith("values/")}
            if HOW == "turned":
                state["linear_z.weight"] = state["linear_z.weight"][::-1]
            if HOW == "unknown parameter":
                state["bias"] = [1]
            real.send(sock, {**FINE, "state": state})
        elif request["call"] == "step":
            step(sock)
        elif request["call"] == "counters":
            more = {"counters": {"edges": 9}} if HOW == "counts later" else {}
            real.send(sock, {**FINE, "cuda": {}, **more})
        else:  # it answers that it has written, and writes nothing
            real.send(sock, FINE)


main()
