"""Computes results over many questions: rates with their errors, p-values of a data set, tests of unseen questions."""
