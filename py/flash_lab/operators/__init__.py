"""Measuring any operator: one kernel, several side by side, a curve over shapes."""
