"""Documentation of tools, generated from specs: pages, passages, guides, prompt index, site.

No tool is run, and no tool's text can affect the layout.
"""

from toolkiln.docs.pages import guide, page, page_name, prompt_index
from toolkiln.docs.passages import passages
from toolkiln.docs.site import build_site, write_site

__all__ = [
    "build_site",
    "guide",
    "page",
    "page_name",
    "passages",
    "prompt_index",
    "write_site",
]
