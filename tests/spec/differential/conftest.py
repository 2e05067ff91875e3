"""The longer run: `pytest tests/spec/differential --hypothesis-profile=thorough`."""

from hypothesis import settings

settings.register_profile("thorough", max_examples=3000, print_blob=True)
