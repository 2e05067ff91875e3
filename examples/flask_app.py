"""Tools in a Flask application: one Kiln for all threads.

    cd examples && flask --app flask_app run
    curl "127.0.0.1:5000/convert?value=26.2&source=mi&target=km"

Each request runs in a thread of the server and uses `call_sync`. Also with gunicorn, threads or
processes: a Kiln starts afresh in each process.
"""

from typing import Any

from flask import Flask, Response, jsonify, request

from toolkiln import Kiln

kiln = Kiln("tools", dev=True)  # without dev: the versions that were admitted
app = Flask(__name__)


@app.get("/convert")
def convert() -> tuple[Response, int]:
    """Convert a value between units."""
    return answer("convert_units", request.args.to_dict())


@app.get("/cron")
def explain() -> tuple[Response, int]:
    """Explain when a schedule of cron runs."""
    return answer("explain_cron", request.args.to_dict())


def answer(tool: str, arguments: dict[str, Any]) -> tuple[Response, int]:
    """What a tool gives, or why it gives nothing."""
    result = kiln.call_sync(tool, arguments)
    if result.error is not None:
        return jsonify(error=result.error.message), 422 if result.status == "invalid" else 502
    return jsonify(result.value), 200
