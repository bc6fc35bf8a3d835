"""Clean tasks: benchmarks without the flagged questions, to run with plain `lm_eval`."""
