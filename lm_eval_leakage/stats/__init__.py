"""Computations over many questions: rates with their errors, p-values of a data set, unseen questions."""
