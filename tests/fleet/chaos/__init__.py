"""A fleet in which everything dies at random, and the reckoning after it.

`make chaos` runs it for CHAOS_SECONDS (300 by default), with the seed CHAOS_SEED or one that
it makes up and prints: `test_chaos` is the run, `callers` make calls of every kind and write
down what became of each, `calamities` kill, stop, drain, upgrade and restart. Workers are
programs with functions (`performer`) or have sandboxes; both note every start of a tool.
"""
