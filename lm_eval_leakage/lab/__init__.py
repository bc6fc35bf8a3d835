"""Simulates contamination: trains models on part of a benchmark, to measure detectors where the truth is known."""
