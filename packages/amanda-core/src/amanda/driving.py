"""The author of a driver imports this: how one framework's execution mode obeys the tools.

A *driver* intercepts the operators of a framework and says which is which; the *engine* asks the
tools about each of them once, and answers with a *plan*; the driver carries the plan out. Data
flows in that one direction, and a driver decides nothing.

What a driver promises:

- It subclasses :class:`Driver` and announces an object of that class by an entry point in the group
  ``amanda.drivers``, or by :func:`register_driver`. Loading it imports its framework, and changes
  there no more than what has to last longer than a scope.
- :meth:`Driver.activate` is called in each thread whose tools change, with the :class:`Engine` to
  run under. With None the framework runs in that thread as if there were no driver.
- It makes one :class:`Operator` for each place in a model and keeps it as long as that lives, as
  :class:`Operators` does for places in the program (:func:`calling_instructions`). What the engine
  knows of an operator is kept under its ``serial`` and is gone when it is; :class:`ByOperator` is
  such a table, for what the driver keeps itself.
- At an execution it takes the operator's :class:`Plan` from the engine. Where there is none it
  describes the execution (:class:`Execution`) and has :meth:`Engine.analyze` make one. It then runs
  what the plan lists, in that order; each :class:`Action` there names its routine and the tensors
  it selects. In the backward pass it does the same by a plan for each backward operator
  (:meth:`Engine.backward_plan`) and one for the gradient of an operator as a whole
  (:meth:`Engine.gradient_plan`). It need not keep the tensors of the forward side for the first of
  these where nobody looks at them (:meth:`Engine.keeps_forward`).
- Where it has a model as a graph, it shows that to the maps in ``engine.context_maps``, as
  ``amanda_contextmap.Graph`` says. Each :class:`Composite` that they find becomes an operator of
  its own, whose ``only_in`` is the map's vocabulary, and its parts operators with that in
  ``part_in``.
- Where its framework runs operators one by one, a call of one of the maps' ``functions`` that
  ``is_one`` there becomes an operator in the same way: its ``only_in`` is the map's vocabulary.
- Where its framework has modules (layers), it says so (``has_modules``) and shows their calls. If
  :attr:`Engine.wants_modules`, it asks :meth:`Engine.wants_module` at each call (and may ask
  :meth:`Engine.wants_class` ahead of that, where it takes time to tell the path), and one that is
  wanted is an :class:`Operator` with ``is_module``: its type is the class, its scope the path, and
  its id as that of any operator, so that a module that is called twice is two. It is executed as
  any operator, by :meth:`Engine.analyze` and a :class:`Plan`, but for three things. What runs in it
  runs under the same engine. Its inputs and outputs are the tensors in what the caller gives and
  gets (:func:`tensors_in`, :func:`with_tensors_in`), with names (:func:`leaves`). And its plan
  tells at once what to do at its gradient (:attr:`Plan.whole`). A module may do anything: it runs
  once at each call, also if it is replaced.
- It calls the code of tools through the engine (:meth:`Engine.run`) or, in a graph, by
  :meth:`Action.run`; both check what comes back. While such code runs (:func:`in_routine`) nothing
  is intercepted; :class:`ActiveEngine` keeps count of that for each thread, with the engine that
  the thread runs under.
- What the routines of a plan ask for of the forward side (:attr:`Plan.asked`) it hands to them as a
  :class:`Forward`, as it was when the operator ran, and holds it only as long as the graph. Through
  that a routine that replaces an operator also runs the ``original``.
- Where its framework runs operators one by one, :class:`Call` carries their plans out in the order
  and with the gradients of ``docs/semantics.md``, given what only the framework can do. Meanwhile
  it pauses the driver's :class:`ActiveEngine`, which that has as :attr:`Driver.active`.
- Where its framework stages functions (runs them once on placeholders, and then as a program), it
  does all of this while one is staged, by :class:`StagedCall`. What was staged, or else made by
  plans, it uses again only where :attr:`Engine.stamp` is the same.
- It tells what there is to know of a tensor (:meth:`Driver.describe`) and of a parameter, which
  core finds by what a tensor was :meth:`Driver.read_from`, of devices that run beside the host
  (:meth:`Driver.synchronize`, :meth:`Driver.allocated`) and of what an operator is there for
  (:meth:`Driver.purpose`, :meth:`Driver.computes_parameter`), so that tools need not know its
  framework.
- Where tools want to know what makes the inputs of an operator (:attr:`Plan.producers`), it adds
  to these what it finds, at an execution or in a graph: outputs of operators that the same tool
  looks at, across all that it does not. A driver that does so says so (``tells_producers``).
- It tells where its framework keeps a parameter, as a :class:`Stored` (:meth:`Driver.stored`), so
  that what a tool makes of it can be made permanent, in a block of :meth:`Driver.at_rest`.
- It may lend the framework's own profiler to tools (:meth:`Driver.profiler`, a :class:`Profiler`).
- It may compare compiled code with its operators (:meth:`Driver.hold_compiled`).
- It tells where in the program an operator is (``Operator.locate``, a :class:`Source`), by
  :func:`calling_source` when it makes one, as :class:`Operators` does, or by what a graph keeps of
  its nodes, of which :func:`is_program` tells the program's own lines.
- What it cannot do right it refuses by :class:`amanda.UnsupportedError`, at the latest in
  :meth:`Driver.check_action`, before anything runs.
- What it changes in its framework it holds by :class:`Patches`, for the threads that have tools;
  what it changes in a module that the program may import later, as a library on top of its
  framework, it gives as :class:`OnImport`.
- The names that it uses of its framework, and that the framework does not document, it looks up
  when it is loaded by :class:`PrivateNames`.

:mod:`amanda.testing` holds a driver to all of this, and ``docs/writing-a-driver.md`` walks through
two small ones. Errors are those of :mod:`amanda`. A context map, which translates the vocabulary of
a driver, is a :class:`ContextMap`.

The rest tells what is installed: :func:`announced` drivers, those loaded (:func:`known_drivers`),
:func:`frameworks` that have one, and what any package announces (:func:`entry_points_of`).
"""

from amanda._contexts.action import Action
from amanda._contexts.analysis import Analysis, Layouts
from amanda._contexts.forward import NOTHING, Ask, Forward
from amanda._drivers.discovery import (
    Announcement,
    announced,
    entry_points_of,
    frameworks,
    install_hint,
    known_drivers,
    register_driver,
    unregister_driver,
)
from amanda._drivers.driver import Driver
from amanda._drivers.lent import Alike, Held, Kernel, Profiler
from amanda._drivers.tensors import Parameter, Reference, Stored, TensorInfo
from amanda._drivers.vocabulary import context_map
from amanda._execution.call import Call, StagedCall
from amanda._execution.interception import ActiveEngine, OnImport, Patches
from amanda._execution.places import (
    Ids,
    Operators,
    calling_instructions,
    calling_source,
    is_program,
    numbered,
    places_of,
)
from amanda._execution.private_names import PrivateNames, versions_tested
from amanda._operators.names import alike
from amanda._operators.operator import ByOperator, Execution, Operator, Source
from amanda._operators.points import Point, View
from amanda._operators.producers import InputProducers, Producer, Producers
from amanda._operators.trees import leaves, tensors_in, with_tensors_in
from amanda._plans.context_map import Composite, ContextMap, Translation
from amanda._plans.engine import Engine
from amanda._plans.plan import Plan
from amanda._plans.selection import Selection
from amanda._threads.routine import in_routine, name_of
from amanda._tools.subscription import Subscription

__all__ = ["Action", "Call", "Driver", "Engine", "Execution", "Plan", "Point", "StagedCall", "View"]
__all__ += ["ActiveEngine", "ByOperator", "Ids", "OnImport", "Operator", "Operators", "Patches"]
__all__ += ["PrivateNames", "calling_instructions", "in_routine", "numbered", "versions_tested"]
__all__ += ["NOTHING", "Alike", "Ask", "Forward", "Held", "Kernel", "Profiler"]
__all__ += ["leaves", "tensors_in", "with_tensors_in"]
__all__ += ["InputProducers", "Layouts", "Parameter", "Producer", "Producers", "Reference"]
__all__ += ["Source", "Stored", "TensorInfo", "calling_source", "is_program", "places_of"]
__all__ += ["Analysis", "Composite", "ContextMap", "Selection", "Subscription"]
__all__ += ["Translation", "alike", "context_map", "name_of"]
__all__ += ["Announcement", "announced", "entry_points_of", "frameworks"]
__all__ += ["install_hint", "known_drivers", "register_driver", "unregister_driver"]
