"""The page: files for a browser, which then asks the HTTP API for all that it shows.

Nothing here knows tools or callers. What the page does is in `static`, what it takes from
others in `static/vendor`, which `make web` bundles.
"""
