"""The page about the sixteen steps: speeds of a sweep, counters of ncu, counts of machine code."""
