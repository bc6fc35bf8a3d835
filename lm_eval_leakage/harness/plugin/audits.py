"""No tasks of its own: audits are found by name."""
