"""How hard hypothesis tries: the usual run, and `pytest --hypothesis-profile=thorough`."""

from hypothesis import settings

# The time of one example says nothing on a busy machine; speed belongs to `bench/`.
settings.register_profile("usual", deadline=None, print_blob=True)
settings.register_profile("thorough", settings.get_profile("usual"), max_examples=3000)
settings.load_profile("usual")
