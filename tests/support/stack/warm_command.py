"""`trainhouse` as a shell finds it: gives its command to the process that has imported the command line, and ends as that command does.

`installed` of warm_cli.py writes it into a folder, behind a line that names the interpreter, with the address of that process as DOOR.
Holds: standard streams, working folder and environment are the caller's; signals that end a command reach it.
"""

import json
import os
import signal
import socket
import sys

DOOR = ""
FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGABRT)


def main() -> int:
    """Runs the command to its end; its exit code, as a shell has it."""
    signal.pthread_sigmask(signal.SIG_BLOCK, FORWARDED)
    request = {"arguments": sys.argv[1:], "environment": dict(os.environ), "folder": os.getcwd()}
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as door:
        door.connect(DOOR)
        socket.send_fds(door, [json.dumps(request).encode()], [0, 1, 2])
        pid = int.from_bytes(door.recv(8), "little", signed=True)
        for number in FORWARDED:
            signal.signal(number, lambda caught, _: os.kill(pid, caught))
        signal.pthread_sigmask(signal.SIG_UNBLOCK, FORWARDED)
        answer = door.recv(8)
    code = int.from_bytes(answer, "little", signed=True)
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(main())
