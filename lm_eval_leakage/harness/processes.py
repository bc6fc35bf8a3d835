"""What the processes of one run must decide alike."""

from __future__ import annotations

from torch import distributed


def on_all(found: bool) -> bool:
    """Whether every process of the run found it; each must ask. The harness parts the questions among them."""
    if not (distributed.is_available() and distributed.is_initialized()):
        return found
    every: list[bool] = [found] * distributed.get_world_size()
    distributed.all_gather_object(every, found)
    return all(every)
