"""Tensors in a file instead of in memory: for what a learner touches once an update, such as its optimizer's state."""

from __future__ import annotations

import errno
import logging
import mmap
import os
import tempfile
from pathlib import Path

import torch

logger = logging.getLogger(__name__)


class FileMemory:
    """A file without a name, in which tensors lie that are in memory only while they are used.

    The file is mapped, so the tensors behave like any others; pages that are given back stay in the system's file cache as
    long as there is room for them, and cost no memory of the process. The file vanishes with the process.

    Args:
        folder: where the file is made; a folder on a disk, since some systems keep their folder of temporary files in
            memory.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        if lies_in_memory(folder):
            logger.warning(
                "offload_optimizer: %s is a file system in memory, so nothing is saved; set output_dir to a folder on a disk",
                folder,
            )
        self._file = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115 (it lives as long as the tensors)
        self._size = 0
        self._mappings: dict[int, mmap.mmap] = {}

    def __contains__(self, tensor: torch.Tensor) -> bool:
        """Whether a tensor lies here."""
        return tensor.data_ptr() in self._mappings

    def place(self, tensor: torch.Tensor) -> torch.Tensor:
        """A copy of a tensor, in the file.

        Args:
            tensor: any shape, at least one element, on the CPU.

        Raises:
            OSError: if the disk has no room for it.
        """
        tensor = tensor.detach().contiguous()
        size = tensor.numel() * tensor.element_size()
        whole = -(-size // mmap.ALLOCATIONGRANULARITY) * mmap.ALLOCATIONGRANULARITY
        try:
            # Reserved now: a full disk would otherwise kill the process when a page is written.
            os.posix_fallocate(self._file.fileno(), self._size, whole)
        except OSError as error:
            lacks = "has no room for" if error.errno in (errno.ENOSPC, errno.EDQUOT) else "cannot reserve"
            raise OSError(
                f"offload_optimizer: {self.folder} {lacks} another {whole / 1e6:.0f} MB ({error}); free the disk, set "
                "output_dir to another one, or leave offload_optimizer out"
            ) from error
        mapping = mmap.mmap(self._file.fileno(), whole, offset=self._size)
        self._size += whole
        placed = torch.frombuffer(mapping, dtype=tensor.dtype, count=tensor.numel()).view(tensor.shape)
        placed.copy_(tensor)
        self._mappings[placed.data_ptr()] = mapping
        self.give_back(placed)
        return placed

    def give_back(self, tensor: torch.Tensor) -> None:
        """Take a tensor's pages out of memory until it is touched again."""
        self._mappings[tensor.data_ptr()].madvise(mmap.MADV_DONTNEED)


def lies_in_memory(folder: Path, mounts: Path = Path("/proc/mounts")) -> bool:
    """Whether a folder is on a file system that keeps its files in memory, as some systems' folder for temporary files is.

    Args:
        folder: an existing folder.
        mounts: the system's list of mounts; where there is none, the answer is no.
    """
    if not mounts.is_file():
        return False
    kinds = {line.split()[1]: line.split()[2] for line in mounts.read_text().splitlines()}
    nearest = next((str(path) for path in (folder.resolve(), *folder.resolve().parents) if str(path) in kinds), None)
    return nearest is not None and kinds[nearest] in ("tmpfs", "ramfs")
