"""Seals: benchmarks published in a version that a secret key drew, so that leakage has an exact null hypothesis."""
