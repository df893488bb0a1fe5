"""What is called within a module is found by the frames that lead there.

They are followed level by level, by the identity of a frame's code and the offset in it, up to the
code that calls the module. What was called next the last time is most often called next this time,
and to compare its frames takes half as long.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from amanda_torch.frames import DEEPEST, ENDS, ROLES, SKIPPED

if TYPE_CHECKING:
    from types import CodeType, FrameType


@dataclass(slots=True, eq=False)
class Route:
    """A route is the frames that lead to a call, from the innermost one up to the module's code.

    Attributes:
        steps: the code and the offset of each.
        end: the code that calls the module.
        found: what is called.
    """

    steps: tuple[tuple[CodeType, int], ...]
    end: CodeType
    found: Any = None


class Routes:
    """These are the known routes within one module, by a key for what they lead to."""

    def __init__(self) -> None:
        self._followed: dict[object, Route] = {}  # last, by their keys
        self._next: dict[Route, Route] = {}  # the one with the same key that was followed then
        self._levels: dict[object, Any] = {}

    def follow(self, key: object, frame: Any) -> Route | None:
        """Return the route that ends at a frame; None if it is not known."""
        last = self._followed.get(key)
        if last is None:
            return None
        route = self._next.get(last, last)
        try:
            caller = frame
            for code, offset in route.steps:
                if caller.f_code is not code or caller.f_lasti != offset:
                    break
                caller = caller.f_back
            else:
                if caller.f_code is route.end:
                    if route is not last:
                        self._followed[key] = route
                    return route
            route = self._levels[key]
            while True:
                route = route[id(frame.f_code)]
                if type(route) is Route:
                    break
                route = route[frame.f_lasti]
                frame = frame.f_back
        except (KeyError, AttributeError):  # it is new, or in code that is made anew
            return None
        self._follows(key, route)
        return route

    def lead(self, key: object, frame: FrameType | None, found: object) -> None:
        """Have something found by the frames that lead there, unless code stands for other code."""
        level = self._levels.setdefault(key, {})
        steps: list[tuple[CodeType, int]] = []
        for _ in range(DEEPEST):
            if frame is None:
                return
            code = frame.f_code
            role = ROLES.get(id(code))
            if role is ENDS:
                route = level.setdefault(id(code), Route(tuple(steps), code))
                route.found = found
                self._follows(key, route)
                return
            if role is not None and role is not SKIPPED:
                return
            steps.append((code, frame.f_lasti))
            level = level.setdefault(id(code), {}).setdefault(frame.f_lasti, {})
            frame = frame.f_back

    def _follows(self, key: object, route: Route) -> None:
        """Expect a route next time after the one that was followed last."""
        last = self._followed.get(key)
        if last is not None and self._next.get(last, last) is not route:
            self._next[last] = route
        self._followed[key] = route

    def forget(self, key: object) -> None:
        """Forget all routes with a key."""
        last = self._followed.pop(key, None)
        while last is not None:
            last = self._next.pop(last, None)
        self._levels.pop(key, None)
