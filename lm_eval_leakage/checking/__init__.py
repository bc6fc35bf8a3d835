"""`lm-eval-leakage check`: plans, runs what is missing, and ends with one verdict per model and task."""
