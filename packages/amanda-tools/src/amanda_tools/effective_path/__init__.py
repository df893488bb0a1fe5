"""An effective path has the fewest synapses of a network that carry a prediction."""

from amanda_tools.effective_path.tool import EffectivePath as EffectivePath
from amanda_tools.effective_path.tool import LayerPath as LayerPath

__all__ = ["EffectivePath", "LayerPath"]
