"""What is known of tools, written down: pages, passages, guides, an index, a site.

Read off specs; no tool is run for it, and no text of a tool gets a say in the layout.
"""

from toolkiln.docs.index import prompt_index
from toolkiln.docs.pages import guide, page, page_name
from toolkiln.docs.site import build_site, write_site
from toolkiln.docs.splitting import passages

__all__ = [
    "build_site",
    "guide",
    "page",
    "page_name",
    "passages",
    "prompt_index",
    "write_site",
]
