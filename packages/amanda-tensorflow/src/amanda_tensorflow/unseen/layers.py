"""Tools see no layers in graphs of which nobody has noted any; this finds such graphs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from amanda_tensorflow._internals import func_graph
from amanda_tensorflow.notes import notes_of, title
from amanda_tensorflow.unseen import OF_MODELS

if TYPE_CHECKING:
    from amanda.driving import Engine

    from amanda_tensorflow.graph.frames import Frame
    from amanda_tensorflow.unseen import Unseen

_WAY_OUT = (
    "import amanda_tensorflow before the graph is built, and call layers of Keras, or tf.Modules "
    "whose __call__ is decorated by tf.Module.with_name_scope, or register with add_inst_for_op"
)


class UnseenLayers:
    """This notices graphs in which a tool that looks at layers sees none.

    Args:
        unseen: is told of it.
    """

    def __init__(self, unseen: Unseen) -> None:
        self._unseen = unseen

    def look_at(self, root: Frame, engine: Engine) -> None:
        """Look for graphs without layers, among those that are called as one."""
        met = self._unseen.met_by(engine)
        for frame in root.walk():
            graph = frame.graph
            if notes_of(graph).layers:
                met.layers = True
            elif any(op.startswith(OF_MODELS) for _, op in frame.forward_operations()):
                # what was not traced here, as what is loaded, may have had some
                loaded = isinstance(graph, func_graph.FuncGraph) and not notes_of(graph).function
                if loaded and engine.needs_modules and not met.told_of_layers:
                    met.told_of_layers = True
                    self._unseen.tell(
                        f"tools see no layers in {title(graph)!r}, which was loaded, or built "
                        f"before amanda_tensorflow was imported; {_WAY_OUT}"
                    )
                met.without_layers = met.without_layers or title(graph)

    def ends(self, engine: Engine) -> None:
        """End with tools that were active; if they saw no layer at all, warn of that."""
        met = self._unseen.met_by(engine)
        none = engine.needs_modules and not met.layers and not met.told_of_layers
        if none and met.without_layers is not None:
            met.told_of_layers = True
            self._unseen.tell(
                f"tools see no layers in {met.without_layers!r}, where none was called that the "
                f"driver knows of; {_WAY_OUT}"
            )
