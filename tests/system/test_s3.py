"""Data at ``s3://``, from a server of that protocol on loopback."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

pytestmark = [pytest.mark.row("A-DATA-1"), pytest.mark.nightly]

SCRIPT = """
import os, sys
os.environ["AWS_ACCESS_KEY_ID"] = os.environ["AWS_SECRET_ACCESS_KEY"] = "a"
os.environ["AWS_DEFAULT_REGION"] = "us-east-1"
from moto.server import ThreadedMotoServer
server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
server.start()
host, port = server.get_host_and_port()
os.environ["AWS_ENDPOINT_URL"] = f"http://127.0.0.1:{port}"
import s3fs
import sapwood
system = s3fs.S3FileSystem()
system.mkdir("bucket")
for number in range(2):
    system.put(f"{sys.argv[1]}/{number}.parquet", f"bucket/{number}.parquet")
data = sapwood.load("s3://bucket/*.parquet", fields=["a"])
assert data["a"].tolist() == list(range(2000))
system.put(f"{sys.argv[1]}/0.parquet", "bucket/1.parquet")
try:
    data.rows(1500, 1510)
except sapwood.errors.DataMissingError as error:
    assert "has changed since" in str(error), error
else:
    raise AssertionError("it has changed")
server.stop()
print("done")
"""


def test_rows_at_s3(tmp_path: Path) -> None:
    for number in range(2):
        values = np.arange(1000 * number, 1000 * (number + 1))
        parquet.write_table(pa.table({"a": values}), tmp_path / f"{number}.parquet")
    found = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert found.stdout.endswith("done\n"), found.stderr
