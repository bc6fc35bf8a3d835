"""`lm-eval-leakage check`: one model in this process, or many on many benchmarks, on one machine or several."""
