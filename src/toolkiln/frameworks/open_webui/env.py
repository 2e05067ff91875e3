"""Stand-in for `open_webui.env`: levels of logging, and a switch that is off."""

from collections import defaultdict

_INFO = 20
_SOURCES = (
    "AUDIO", "COMFYUI", "CONFIG", "DB", "IMAGES", "MAIN", "MODELS", "OAUTH", "OLLAMA", "OPENAI",
    "RAG", "SOCKET", "WEBHOOK",
)  # fmt: skip
GLOBAL_LOG_LEVEL = "INFO"
SRC_LOG_LEVELS = defaultdict(lambda: _INFO, dict.fromkeys(_SOURCES, _INFO))
ENABLE_FORWARD_USER_INFO_HEADERS = False
