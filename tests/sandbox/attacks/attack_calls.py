"""System calls that no tool needs."""
# mypy: ignore-errors

import ctypes

from trying import system_call

from toolkiln import tool


@tool
def system_calls(numbers: dict[str, int]) -> dict[str, str]:
    """Make each call once, with arguments that could work."""
    room = ctypes.create_string_buffer(4096)
    return {name: system_call(number, *_arguments(name, room)) for name, number in numbers.items()}


@tool
def system_calls_with(calls: list[list[int]]) -> list[str]:
    """Make calls: their number, their arguments."""
    return [system_call(number, *arguments) for number, *arguments in calls]


def _arguments(name: str, room: ctypes.Array[ctypes.c_char]) -> tuple[object, ...]:
    return {
        "ptrace": (16, 1, 0, 0),
        "keyctl": (1, room),
        "unshare": (0x10000000,),
        "personality": (0x0040000,),
        "memfd_create": (ctypes.c_char_p(b"x"), 0),
        "io_uring_setup": (8, room),
        "userfaultfd": (1,),
        "fsopen": (ctypes.c_char_p(b"tmpfs"), 0),
        "open_tree": (-100, ctypes.c_char_p(b"/"), 1),
        "sethostname": (ctypes.c_char_p(b"x"), 1),
        "shmget": (1234, 4096, 0o1600),
        "semget": (1234, 1, 0o1600),
        "msgget": (1234, 0o1600),
        "reboot": (0, 0, 0, 0),
    }.get(name, (0, 0, 0, 0, 0))
