"""Some options of tools go with others alone."""

from __future__ import annotations


def refuse_unused(why: str, **options: object) -> None:
    """Refuse options that were given and would change nothing.

    Args:
        why: what else was chosen, with which they have no effect.
        **options: by name; None for one that was not given.

    Raises:
        ValueError: one was given.
    """
    for name, value in options.items():
        if value is not None:
            raise ValueError(f"{name}={value}: with {why} it has no effect")
