"""How hard hypothesis tries: the usual run, and `pytest --hypothesis-profile=thorough`.

The usual run repeats the same examples, so that it says the same of the same code twice;
`make thorough` looks for new ones.
"""

from hypothesis import settings

# The time of one example says nothing on a busy machine; speed belongs to `bench/`.
settings.register_profile("usual", deadline=None, print_blob=True, derandomize=True)
settings.register_profile(
    "thorough", settings.get_profile("usual"), max_examples=3000, derandomize=False
)
settings.load_profile("usual")
