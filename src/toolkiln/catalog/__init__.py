"""The tools of a folder: reading its files, admitting versions, serving snapshots.

`catalog` publishes what is served, `admission` writes decisions, `watch` detects changes; `diff`
and `reports` are pure.
"""
