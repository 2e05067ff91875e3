"""Stand-ins for modules of other frameworks, so that their tool files run unchanged.

Inside the sandbox, `finder` serves them under the frameworks' own module names to files whose
environment has no such package. They offer what a tool needs during a call; everything else
is `unavailable`: it can be imported and raises when it is used.
"""
