"""Which operator a call is an execution of."""

from __future__ import annotations

import sys
import threading
import weakref

from amanda import Operator

from numpy_backend import framework
from numpy_backend.framework import Module


class Identities:
    """The operators met so far.

    The address of an operator is the module it runs in, the instruction that calls it, and, where
    that is passed several times in one run of the model, its turn. Nothing here looks at tensors,
    so that the next iteration finds the same operators.
    """

    def __init__(self) -> None:
        # Operators live as long as their module, and what the engine keeps as long as they.
        self._operators: weakref.WeakKeyDictionary[Module, dict[object, Operator]]
        self._operators = weakref.WeakKeyDictionary()
        self._backward: weakref.WeakKeyDictionary[Operator, Operator]
        self._backward = weakref.WeakKeyDictionary()
        self._by_id: weakref.WeakValueDictionary[str, Operator] = weakref.WeakValueDictionary()
        self._outside = Module()
        self._turns = _Turns()
        self._lock = threading.Lock()

    def forward(self, type: str) -> Operator:
        """The operator of a type that is being called."""
        modules = framework.thread.modules or (self._outside,)
        place = (type, *_caller())
        turn = self._turns.next((id(modules[-1]), *place))
        with self._lock:
            operators = self._operators.setdefault(modules[-1], {})
            if (place, turn) not in operators:
                scope = ".".join(module.name for module in modules if module.name)
                operators[place, turn] = self._new(scope, type)
            return operators[place, turn]

    def backward(self, operator: Operator) -> Operator:
        """The backward operator of an operator; every kernel has one."""
        with self._lock:
            if operator not in self._backward:
                self._backward[operator] = self._new(operator.scope, f"{operator.type}_backward")
            return self._backward[operator]

    def _new(self, scope: str, type: str) -> Operator:
        """An operator with an id that no other living operator has."""
        first = id = f"{scope}/{type}" if scope else type
        count = 1
        while id in self._by_id:
            count += 1
            id = f"{first}#{count}"
        operator = Operator(id=id, type=type, name=id, scope=scope, backend="numpy")
        self._by_id[id] = operator
        return operator


class _Turns(threading.local):
    """How often each place was passed in the current run of the model."""

    def __init__(self) -> None:
        self._run = 0
        self._passed: dict[object, int] = {}

    def next(self, place: object) -> int:
        if self._run != framework.thread.run or not framework.thread.modules:
            self._run = framework.thread.run
            self._passed.clear()
        turn = self._passed.get(place, 0)
        self._passed[place] = turn + 1
        return turn


_BETWEEN = {"numpy_backend.framework", "numpy_backend.driver", __name__}


def _caller() -> tuple[object, int]:
    """The instruction that called into the framework: its code and offset."""
    frame = sys._getframe(1)
    while frame.f_globals["__name__"] in _BETWEEN and frame.f_back is not None:
        frame = frame.f_back
    return frame.f_code, frame.f_lasti
