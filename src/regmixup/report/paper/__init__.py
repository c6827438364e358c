"""The paper's own tables as data, beside which ours are shown: Pinto et al., 2022. Importing this imports no torch.

Its numbers are means over 5 seeds, without standard deviations. SLIPS list where it contradicts itself.
"""

from regmixup.report.paper.slips import SLIPS, At, Slip
from regmixup.report.paper.transcript import PaperTable
from regmixup.report.paper.values import COSTS, TABLES, PaperValue, paper_value, paper_value_of

__all__ = ["COSTS", "SLIPS", "TABLES", "At", "PaperTable", "PaperValue", "Slip", "paper_value", "paper_value_of"]
