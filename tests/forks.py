"""Forks of a test process share no lock with it: importing this sees to that, and what forks or kills imports it.

tqdm guards its bars with a lock of multiprocessing, which all forks share. One that is killed while it draws a bar, 3
of 1,000 in a campaign of stand-in models, would never give it back, and the test would wait for it forever.
"""

from __future__ import annotations

import os
import threading

from tqdm import tqdm


def own_lock_of_progress() -> None:
    tqdm.set_lock(threading.RLock())


os.register_at_fork(after_in_child=own_lock_of_progress)
