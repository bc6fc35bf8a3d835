"""Task YAMLs of lm_eval_leakage, one folder a benchmark; scanned by the harness."""
