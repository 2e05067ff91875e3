"""A fleet in which everything dies at random, and the reckoning after it.

`make chaos` runs it for CHAOS_SECONDS (300 unless told), with the seed CHAOS_SEED or one that
it makes up and prints: `test_chaos` is the run, `callers` make calls of every kind and write
down what became of each, `calamities` kill, stop, drain, upgrade and restart, and `station` is
a worker whose functions leave a trace of every time that they were begun.
"""
