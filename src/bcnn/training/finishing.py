"""What a run leaves behind besides its checkpoints: the report, and the packed file if it is to be packed."""

from __future__ import annotations

from bcnn.lowering.packing import lower_to_pack
from bcnn.nets import network_spec
from bcnn.packed import packfile
from bcnn.training import checkpoint, report_data
from bcnn.training.config import FINAL_WEIGHTS
from bcnn.training.monitor import Monitor
from bcnn.training.opening import OpenRun
from bcnn.training.run_folder import RunFolder
from bcnn.training.run_progress import RunProgress
from bcnn.training.terminal import Terminal


def finish(opened: OpenRun, progress: RunProgress, monitor: Monitor, terminal: Terminal) -> None:
    """Write both, of the last evaluation and the last checkpoint. A run of so many minutes does it once before its end, too."""
    from bcnn.training import report  # it draws, and nothing before this needs matplotlib

    config, data, folder = opened.run.config, opened.data, opened.run.folder
    if monitor.scores is not None:
        size = config.crop_size(config.steps[-1])
        report_data.write(folder, data, monitor.scores, monitor.mistakes, size, config.seed)
    try:
        report.write(folder)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):  # of records that are not ours
        terminal.say(f"no report: what was logged in {folder.path} is damaged; the networks are complete", "yellow")
    here = min(progress.step, len(config.steps) - 1)
    if config.pack and config.steps[here].weights in FINAL_WEIGHTS:
        pack(folder)


def pack(folder: RunFolder) -> None:
    """The run's last network as a packed file in its folder."""
    network, meta = checkpoint.load(folder.path)
    config = network_spec.config_of(network)
    assert config is not None  # `checkpoint.load` built it
    packfile.save(lower_to_pack(network, config.name, meta, config.image_size), folder.packed)
