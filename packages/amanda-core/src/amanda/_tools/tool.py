"""A tool has analysis routines and their state."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from amanda._drivers.vocabulary import spoken
from amanda._errors import AmandaError
from amanda._operators.operator import ByOperator
from amanda._operators.points import View
from amanda._threads.routine import runs_later
from amanda._tools.forgetting import engines
from amanda._tools.permanent import make_permanent, run_on_parameters
from amanda._tools.subscription import Analyze, Subscription

if TYPE_CHECKING:
    from amanda._drivers.driver import Driver
    from amanda._plans.uses import Use

_ToolT = TypeVar("_ToolT", bound="Tool")
Names: TypeAlias = Iterable[str] | None  # all there are for None
_GLOB = frozenset("*?[")


class _SetByInit:
    """This stands for what ``Tool.__init__`` sets, to say so where a subclass has not called it."""

    def __get__(self, tool: Tool | None, cls: type[Tool]) -> Any:
        raise AttributeError(f"{cls.__name__}.__init__ has to call super().__init__() first")


class Tool:
    """A tool looks at operators and inserts routines; this is the base class of all.

    A subclass registers analysis routines in its ``__init__`` and is made active by
    :func:`amanda.apply`. What it registers later holds in scopes that are opened after that.

    Args:
        namespace: the vocabulary that the tool speaks: a backend's own, of whose operators alone
            it then sees something, or a portable one, which context maps translate to. By default,
            and with a name that is no vocabulary but the tool's own, it speaks whatever the
            backend at hand does.
        layout: how a tool that speaks another vocabulary than the backend's sees tensors:
            ``canonical``, as that vocabulary has them, or ``native``, as the backend does.

    Attributes:
        innermost: its routines run next to the operator, the last ones before it and the first
            ones after it, whatever else is active. It is for tools that measure the operator.
        lists_candidates: the types that it names are all that it knows, of which a model has few;
            by default one that never runs in a scope is taken for a mistake, and warned of.
        restricted_to: the types that it is restricted to by :meth:`restrict`; None for all.
        uses: what it decided about operators that may be made permanent.
        cut_short: the names of the exceptions that ended scopes of the tool early, so that it has
            not seen all. The last one is there ahead of :meth:`on_exit`. A program that calls
            ``sys.exit`` ends by itself.
    """

    innermost = False
    lists_candidates = False
    restricted_to: frozenset[str] | None = None
    cut_short: tuple[str, ...] = ()
    subscriptions: list[Subscription] = _SetByInit()  # type: ignore[assignment]
    dependencies: list[Tool | type[Tool]] = _SetByInit()  # type: ignore[assignment]

    def __init__(self, namespace: str | None = None, *, layout: str = "canonical") -> None:
        if layout not in ("canonical", "native"):
            raise ValueError(f"layout is 'canonical' or 'native', not {layout!r}")
        if not isinstance(namespace, (str, type(None))):
            raise TypeError(f"namespace is the name of a vocabulary, not {namespace!r}")
        self.layout = layout
        self.namespace = namespace
        self.subscriptions = []
        self.dependencies = []
        self.uses: ByOperator[Use] = ByOperator()
        self._built: dict[type[Tool], Tool] = {}

    @functools.cached_property
    def vocabulary(self) -> str | None:
        """Tell the vocabulary that it speaks, None for that of the backend at hand.

        It is found out when it is first asked for, which is when a scope opens.
        """
        return spoken(self.namespace)

    @functools.cached_property  # so that a tool may have a name of its own
    def name(self) -> str:
        """Return the tool's name in messages: that of its class, unless it is given another."""
        return type(self).__name__

    def add_inst_for_op(
        self,
        callback: Analyze,
        backward: bool = False,
        require_outputs: bool = False,
        *,
        ops: Names = None,
        scopes: Names = None,
        opt_in: bool = False,
        require_producers: bool = False,
        keep_forward: bool = True,
    ) -> None:
        """Register an analysis routine for operators.

        Args:
            callback: called with an :class:`OpContext` once per operator.
            backward: look at backward operators, each by its own type, instead of forward ones.
            require_outputs: call it when the outputs (the input gradients, with ``backward``) of
                the first execution are known. It may then insert after the operator; an operator
                that cannot be run again to take effect at once refuses other insertions.
            ops: the operator types it wants, all by default. Types that no tool wants are never
                intercepted. With ``backward``, the types of the backward operators or of the
                forward operators that they belong to.
            scopes: globs of the scopes of the (forward) operators it wants, all by default. One
                selects the scopes that it matches as a whole, where ``*`` is any text, also with
                dots or slashes, and all that lies in these: ``encoder.layer.*`` and
                ``encoder.layer`` all layers, ``encoder.layer.[02]`` two of them, ``*.attention``
                the attention of any. ``""`` is for operators in no scope.
            opt_in: without ``ops``, look also at what is hidden from a tool that does not
                name its type, such as the operators of an optimizer.
            require_producers: have :meth:`OpContext.producers` tell what makes the inputs of
                (forward) operators. Those that it looks at are all that this is told of, so it
                wants all of them.
            keep_forward: with ``backward``, have ``ctx.inputs`` and ``ctx.outputs`` be those of the
                forward operator, which the first step keeps until its backward. Without it that
                step takes no more memory than one without tools.

        Raises:
            TypeError: the callback cannot be called, or names are not a list of them.
            ValueError: ``keep_forward`` is False, and ``backward`` is too.
        """
        if not (keep_forward or backward):
            raise ValueError(f"{self.name}: keep_forward=False is for backward=True")
        view = View.BACKWARD if backward else View.FORWARD
        self._subscribe(
            *(callback, view, ops, scopes),
            require_outputs=require_outputs,
            require_producers=require_producers,
            opt_in=opt_in,
            keep_forward=keep_forward,
        )

    def add_inst_for_gradient(
        self,
        callback: Analyze,
        *,
        ops: Names = None,
        scopes: Names = None,
    ) -> None:
        """Register an analysis routine for the gradient of an operator as a whole.

        However many backward operators compute it, ``ctx.grad_outputs`` lines up with the
        operator's outputs and ``ctx.grad_inputs`` with its inputs, None where no gradient flows.

        Args:
            callback: called with an :class:`OpContext` once per operator, at its first backward.
            ops: the types of (forward) operators it wants, all by default.
            scopes: globs of their scopes, as for :meth:`add_inst_for_op`.
        """
        self._subscribe(callback, View.GRADIENT, ops, scopes)

    def add_inst_for_module(
        self,
        callback: Analyze,
        require_outputs: bool = False,
        *,
        modules: Names = None,
        types: Names = None,
        optional: bool = False,
    ) -> None:
        """Register an analysis routine for modules: layers, blocks, the model as a whole.

        Each call of a module in the model is seen as one operator, whose type is the module's
        class and whose scope is its path. Its inputs are the tensors that whoever calls it gives,
        and its outputs those that the caller gets, with whatever hooks of the program have made of
        them. Trees of tensors are flattened, and ``ctx.input_names`` and ``ctx.output_names`` tell
        where in them each is: ``hidden_states``, ``past_key_values.0``. Class, path and tensors are
        those of the backend in every vocabulary. What happens in a module is seen as before.

        The routine may insert at all points of an operator: before, after or instead of it, and on
        its gradients.

        Args:
            callback: called with an :class:`OpContext` once per call of a module in the model.
            require_outputs: call it when the outputs of the first execution are known. It may then
                insert after the module and on the gradients of its outputs.
            modules: globs of the paths of the modules it wants, all by default. One selects the
                modules whose path it matches as a whole, where ``*`` is any text, also with dots
                or slashes: ``encoder.layer.0`` is that layer alone, ``encoder.layer.*`` all layers
                and what is in them. ``""`` is the model itself.
            types: the classes that it wants, by their names, all by default.
            optional: do without where a backend, or what runs on it, has no modules, and say
                nothing of it.

        Raises:
            UnsupportedError: when a scope opens and the backend has no modules.
        """
        self._subscribe(
            *(callback, View.MODULE, types, modules),
            require_outputs=require_outputs,
            optional=optional,
        )

    def depends_on(self, *tools: Tool | type[Tool]) -> None:
        """Have other tools active, ahead of this one, whenever this one is.

        A dependency given as a class is the tool of that class that is in the scope anyway, or
        is built (without arguments) when a scope first needs one. All tools of a scope that ask
        for a class share one, which stays with them for later scopes; see :meth:`dependency`.
        """
        for tool in tools:
            is_class = isinstance(tool, type) and issubclass(tool, Tool)
            if not is_class and not isinstance(tool, Tool):
                raise TypeError(f"{self.name} depends on {tool!r}, which is not a tool")
            self.dependencies.append(tool)

    def dependency(self, cls: type[_ToolT]) -> _ToolT:
        """Return the tool of class ``cls`` that this one depends on.

        Raises:
            AmandaError: there is none, or it is given as a class and no scope has built it yet.
        """
        for dependency in self.direct_dependencies():
            if isinstance(dependency, cls):
                return dependency
        raise AmandaError(f"{self.name} has no dependency {cls.__name__} that is built")

    def direct_dependencies(self) -> list[Tool]:
        """List the tools that this one asked for, without those that no scope has built yet."""
        tools = [self._built.get(d) if isinstance(d, type) else d for d in self.dependencies]
        return [tool for tool in tools if tool is not None]

    def invalidate(self) -> None:
        """Have this tool's analysis routines run again, at the next execution of each operator."""
        for engine in list(engines):
            engine.forget(self)

    def restrict(self, ops: Iterable[str]) -> None:
        """Have it look at operators of these types alone, of those that it wants."""
        self.restricted_to = frozenset(ops)

    def make_permanent(self, model: Any) -> list[str]:
        """Write what it makes of the parameters of a model into the model.

        A checkpoint that is saved then needs no tool: its operators are given without one, bit by
        bit, what they are given under it. Parameters keep their type and device; what an optimizer
        keeps is left alone. What routines make of a parameter they make of what it is now.

        Args:
            model: what holds the parameters, and has run under the tool: a model, or else, as its
                framework has it, a list of variables or a session.

        Returns:
            ids of the operators whose parameters it has replaced.

        Raises:
            UnsupportedError: it changes more than parameters, or changes them by more than
                parameters, or otherwise each time, which is found out by running routines twice,
                or a parameter cannot hold what several operators are to be given. The model is as
                it was.
            AmandaError: it has replaced no parameter of the model.
        """
        return make_permanent(self, model)

    def run_on_parameters(self, model: Any) -> None:
        """Run the routines that :meth:`make_permanent` would, and leave the model as it is.

        A tool whose routines are given parameters alone looks at those of a model in this way
        between its executions, each as the operator is given it. What is refused is as there.
        """
        run_on_parameters(self, model)

    def on_enter(self, driver: Driver) -> None:
        """Do what the tool does for each framework that is there when a scope makes it active, and
        for one that is imported later: nothing here.
        """

    def on_exit(self) -> None:
        """Do what the tool does when the scope that made it active has been left: nothing here.

        A tool that writes files completes them here. It may be active again afterwards. A
        process that was forked within the scope does not call it.
        """

    def _subscribe(
        self, callback: Analyze, view: View, ops: Names, scopes: Names, **options: bool
    ) -> None:
        """Register an analysis routine, with the options of a subscription."""
        if not callable(callback):
            raise TypeError(f"{self.name}: the analysis routine {callback!r} is not callable")
        if runs_later(callback):
            raise TypeError(
                f"{self.name}: the analysis routine {callback!r} is a generator or a coroutine, "
                "of which a call runs nothing; write an ordinary function"
            )
        called = ("types", "modules") if view is View.MODULE else ("ops", "scopes")
        types, globs = map(self._names, called, (ops, scopes))
        self.subscriptions.append(Subscription(self, callback, view, types, globs, **options))

    def _names(self, option: str, given: Names) -> frozenset[str] | None:
        """Check the names that an option lists, and return them; None for all there are."""
        if isinstance(given, str):
            raise TypeError(f"{self.name}: {option} is a list of names; write {option}=[{given!r}]")
        found = None if given is None else frozenset(given)
        for name in found or ():
            if not isinstance(name, str):
                raise TypeError(f"{self.name}: {option} is a list of names, {name!r} is not a name")
            if option == "ops" and not _GLOB.isdisjoint(name):
                raise TypeError(
                    f"{self.name}: ops has names of types and no globs, {name!r} would select "
                    "none; list the types, or leave ops out and look at ctx.op.type"
                )
        return found
