"""Everything that touches lm-evaluation-harness: tasks, filters, rows, wiring. The only room that imports it."""
