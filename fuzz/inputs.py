"""Inputs for a target: pieces of its seeds, its words and arbitrary bytes, in any order."""

from hypothesis import strategies as st

from fuzz.targets import MAX_INPUT, Target


def inputs(target: Target) -> st.SearchStrategy[bytes]:
    """Bytes that a target's parser understands in part."""
    pieces = st.one_of(
        st.sampled_from(target.seeds).flatmap(_slices),
        st.sampled_from(target.words),
        st.binary(max_size=8),
    )
    return st.lists(pieces, max_size=12).map(lambda parts: b"".join(parts)[:MAX_INPUT])


def _slices(seed: bytes) -> st.SearchStrategy[bytes]:
    places = st.integers(0, len(seed))
    return st.tuples(places, places).map(lambda ends: seed[min(ends) : max(ends)])
