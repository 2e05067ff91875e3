"""Concealing: everything that a call lets out, without the secrets that it was handed."""

from collections.abc import Callable

from toolkiln.execution.executor import Outcome
from toolkiln.execution.masking import Mask
from toolkiln.model import Event

_STREAMS = ("stdout", "stderr")


def conceal(outcome: Outcome, mask: Mask) -> None:
    """Mask what running gave, before anything is made of it."""
    outcome.value = mask.value(outcome.value)
    outcome.stdout = mask.text(outcome.stdout, cut=outcome.is_cut)
    outcome.stderr = mask.text(outcome.stderr, cut=outcome.is_cut)
    outcome.notes = [mask.text(note) for note in outcome.notes]
    outcome.messages = [mask.value(message) for message in outcome.messages]
    outcome.injected_tools = [mask.text(name) for name in outcome.injected_tools]
    outcome.files = [
        file.model_copy(update={"name": mask.text(file.name), "data": mask.data(file.data)})
        for file in outcome.files
    ]
    if outcome.error is not None:
        texts = {
            name: mask.text(text, cut=True)
            for name in ("message", "type", "hint", "traceback")
            if (text := getattr(outcome.error, name)) is not None
        }
        outcome.error = outcome.error.model_copy(update=texts)


class ConcealedEvents:
    """Events of a running call, masked, however its output is split into pieces."""

    def __init__(self, mask: Mask, observe: Callable[[Event], None]) -> None:
        self._mask = mask
        self._observe = observe
        self._streams = {name: mask.stream() for name in _STREAMS}

    def observe(self, event: Event) -> None:
        """Pass an event on; the end of a piece may have to wait for the next one."""
        if event.kind in self._streams:
            text = self._streams[event.kind].feed(event.text)
            if not text:
                return
        else:
            text = self._mask.text(event.text)
        self._observe(event.model_copy(update={"text": text}))

    def end(self, *, cut: bool) -> None:
        """Let out what waited; `cut`: more was printed than was passed on."""
        for kind in _STREAMS:
            if text := self._streams[kind].end(cut=cut):
                self._observe(Event(kind=kind, text=text))  # type: ignore[arg-type]
