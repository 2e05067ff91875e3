"""Fuzzing of every parser that reads foreign bytes.

    python -m fuzz                        list the targets
    python -m fuzz source --seconds 600   fuzz one

`targets` is the table of parsers, `inputs` generates bytes for them, `__main__` runs one target
for a time: with atheris, guided by coverage, where it is installed, otherwise with hypothesis.
`tests/test_fuzz.py` tries a few inputs of each target with every run of the tests, and many
with `make thorough`.
"""
