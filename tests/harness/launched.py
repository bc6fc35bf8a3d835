"""Makes a forked process one of several that a launcher has started, each on a node of its own."""

from __future__ import annotations

import os
import socket

from accelerate.state import AcceleratorState

from lm_eval_leakage.harness.models import processes as ranked_hf


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def launched_as(number: int, port: int, n_processes: int = 2) -> None:
    """Start processes as launchers do that set the usual variables, and end no process if another one ends."""
    os.environ |= {"RANK": str(number), "LOCAL_RANK": "0", "WORLD_SIZE": str(n_processes), "LOCAL_WORLD_SIZE": "1"}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "HF_HUB_OFFLINE": "1"}
    ranked_hf.LOCAL_RANK = "0"
    AcceleratorState._reset_state(reset_partial_state=True)
