"""A killed fork takes nothing with it that its parent needs."""

from __future__ import annotations

import os
import signal

from tqdm import tqdm


def test_a_fork_that_is_killed_while_it_draws_a_bar_does_not_stop_the_bars_of_its_parent() -> None:
    (lock,) = [one for one in tqdm.get_lock().locks if hasattr(one, "_semlock")]
    fork = os.fork()
    if not fork:
        with tqdm.get_lock():
            os.kill(os.getpid(), signal.SIGKILL)
    assert os.waitstatus_to_exitcode(os.waitpid(fork, 0)[1]) == -signal.SIGKILL
    assert lock.acquire(True, 1)
    lock.release()


def test_a_fork_does_not_wait_for_a_bar_that_its_parent_draws() -> None:
    with tqdm.get_lock():
        fork = os.fork()
        if not fork:
            os._exit(int(not tqdm.get_lock().acquire(blocking=False)))
        assert os.waitstatus_to_exitcode(os.waitpid(fork, 0)[1]) == 0
