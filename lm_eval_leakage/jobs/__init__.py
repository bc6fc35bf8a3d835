"""`lm-eval-leakage campaign`: many models on many benchmarks, on one machine or several, with one leaderboard."""
