"""These are Amanda's tools, which tell where operators, FLOPs and time go, and its command."""

from amanda import __version__ as __version__

from amanda_tools.campaign import Campaign, Trial, campaign
from amanda_tools.comparing import compare, compare_records
from amanda_tools.comparison import Comparison, Difference
from amanda_tools.compiled import Compiled, CompiledCode
from amanda_tools.execution import Execution
from amanda_tools.executions import Executions
from amanda_tools.faults import Fault, Faults
from amanda_tools.findings import Findings
from amanda_tools.flops import Flops, OperatorFlops
from amanda_tools.graph import Edge, Graph, Network, Node
from amanda_tools.html_report import write_report
from amanda_tools.kernels import Kernels, OperatorKernel
from amanda_tools.merge_files import merge_files
from amanda_tools.merging import Merged, RankNumber, gathered
from amanda_tools.nonfinite import NanWatch, NonFinite
from amanda_tools.operators import OperatorRow, Operators
from amanda_tools.place import Place
from amanda_tools.profile import OperatorProfile, Profile
from amanda_tools.recording import Record, Recorded, Run, unpacked
from amanda_tools.report import Column, by_module, by_type, columns_of
from amanda_tools.summary import ModuleSummary, Summary
from amanda_tools.trace import Trace
from amanda_tools.trace_file import TraceRow, read_trace

__all__ = [
    "Campaign",
    "Column",
    "Comparison",
    "Compiled",
    "CompiledCode",
    "Difference",
    "Edge",
    "Execution",
    "Executions",
    "Fault",
    "Faults",
    "Findings",
    "Flops",
    "Graph",
    "Kernels",
    "Merged",
    "ModuleSummary",
    "NanWatch",
    "Network",
    "Node",
    "NonFinite",
    "OperatorFlops",
    "OperatorKernel",
    "OperatorProfile",
    "OperatorRow",
    "Operators",
    "Place",
    "Profile",
    "RankNumber",
    "Record",
    "Recorded",
    "Run",
    "Summary",
    "Trace",
    "TraceRow",
    "Trial",
    "by_module",
    "by_type",
    "campaign",
    "columns_of",
    "compare",
    "compare_records",
    "gathered",
    "merge_files",
    "read_trace",
    "unpacked",
    "write_report",
]
