"""Where the runs of a study are carried out: one after the other here, in a process per device, or as Ray tasks.

Every launcher gives the same rows. What is done, and how far, lies in the run folders alone.
"""

from regmixup.study.launchers.in_turn import InTurn
from regmixup.study.launchers.processes import Processes, all_devices
from regmixup.study.launchers.ray_tasks import RayTasks
from regmixup.study.launchers.schedule import Launcher, Progress

__all__ = ["InTurn", "Launcher", "Processes", "Progress", "RayTasks", "all_devices"]
