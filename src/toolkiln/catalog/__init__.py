"""The tools of a folder: reading its files, admitting versions, serving snapshots.

`catalog` holds what is served, `admission` what people decide, `watch` notices changes;
`naming`, `mending`, `repairs` and `changes` are the pure parts of authoring.
"""
