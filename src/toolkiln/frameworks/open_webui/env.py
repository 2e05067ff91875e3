"""Stand-in for `open_webui.env`: levels of logging, and a switch that is off."""

from collections import defaultdict

GLOBAL_LOG_LEVEL = "INFO"
SRC_LOG_LEVELS: defaultdict[str, int] = defaultdict(lambda: 20)
ENABLE_FORWARD_USER_INFO_HEADERS = False
