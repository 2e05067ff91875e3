"""Documentation of tools, generated from specs: pages, passages, prompt index, site.

No tool is run, and no tool's text can affect the layout.
"""
