"""Task YAMLs of lm_eval_leakage, one folder per benchmark, and templates of audits; indexed by lm_eval."""
