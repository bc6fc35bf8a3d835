"""Attacks on the package, counted: `python -m tests.faults` (`make faults`). A small core of it runs with the tests.

Every attack says how often it was tried and what it found: answers or files that were lost, questions that stood twice
in what was written, and anything that was wrong without a word. All three have to be 0.
"""
