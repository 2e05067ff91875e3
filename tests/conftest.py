"""How hard hypothesis tries: the usual run, and `pytest --hypothesis-profile=thorough`.

The usual run repeats the same examples, so that it says the same of the same code twice;
`make thorough` looks for new ones.
"""

import signal

from hypothesis import settings

# Shells start what runs in the background with Ctrl-C ignored, and children inherit that:
# without this, commands that tests interrupt would go on.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# The time of one example says nothing on a busy machine; speed belongs to `bench/`.
settings.register_profile("usual", deadline=None, print_blob=True, derandomize=True)
settings.register_profile(
    "thorough", settings.get_profile("usual"), max_examples=3000, derandomize=False
)
settings.load_profile("usual")
