"""Where files come from: the data folder, the download folder, the publishers."""

from dgbench.datasets.sources.hashing import check_file, content_sha256, file_sha256
from dgbench.datasets.sources.locate import LocalVariant, data_dir, download_dir, find_form, missing

__all__ = [
    "LocalVariant",
    "check_file",
    "content_sha256",
    "data_dir",
    "download_dir",
    "file_sha256",
    "find_form",
    "missing",
]
