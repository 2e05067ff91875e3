"""The page as assistive technology sees it, for `surface_snapshot.py`: roles and names."""

import re

from playwright.sync_api import expect, sync_playwright

from surface_sessions import Files, admit, masked, program, project, serving

_PAGES = {
    "": ["10 tools"],
    "tools/pay": ["Required:"],
    "tools/pay?show=versions": ["served"],
    "write": ["No findings", "Required:"],
    "runs": ["No calls yet", "No calls in the last hour"],
    "approvals": ["No pending requests"],
    "audit": ["records are intact", "End of log"],
    "settings": ["Your permissions"],
    "tools/nothing": ["does not exist"],
}
"""Addresses, and texts that show that a page has all that it asked the server for."""
_MASKS = ((r"\d+ \w{3} \d{4}, [\d:]{8}", "<time>"), (r" [\d.]+ m?s(?=\"|$)", " <duration>"))


def page() -> Files:
    """The accessibility tree of each page, one after the other."""
    chromium = program("chromium")
    lines = []
    with project() as folder:
        admit(folder)
        with (
            serving(folder) as (url, token),
            sync_playwright() as playwright,
            playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"]) as browser,
            browser.new_context(
                reduced_motion="reduce", timezone_id="UTC", locale="en-GB"
            ) as context,
        ):
            context.set_extra_http_headers({"authorization": f"Bearer {token}"})
            for path, texts in _PAGES.items():
                opened = context.new_page()
                opened.goto(f"{url}/ui/{path}")
                for text in texts:
                    found = opened.locator("main").get_by_text(text).first
                    expect(found).to_be_attached(timeout=60_000)
                if path.startswith("tools/pay"):  # the count comes with a request of its own
                    health = opened.get_by_role("tab", name="Health 1")
                    expect(health).to_be_attached(timeout=60_000)
                expect(opened.locator(".busy")).to_have_count(0, timeout=60_000)
                # What is around it is the same everywhere.
                part = opened.locator("main" if path else "body")
                lines += [f"# /ui/{path}", masked(part.aria_snapshot(), folder), ""]
                opened.close()
    text = "\n".join(lines)
    for pattern, replacement in _MASKS:
        text = re.sub(pattern, replacement, text, flags=re.M)
    return {"page.txt": text}
