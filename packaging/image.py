#!/usr/bin/env python3
"""Writes an OCI image of one static program: image.py PROGRAM ARCHITECTURE VERSION OUT.tar

The image layout 1.1 of the Open Container Initiative in a tarball, which `podman load`, `docker load`
(25 and later) and `skopeo copy oci-archive:` take. It has one layer with the program and folders for
its state, and no shell. The same program makes the same bytes.
"""

import gzip
import hashlib
import io
import json
import os
import sys
import tarfile
from datetime import datetime, timezone

EPOCH = int(os.environ.get("SOURCE_DATE_EPOCH", "0"))


def entry(name, mode, kind=tarfile.REGTYPE, size=0, link=""):
    info = tarfile.TarInfo(name)
    info.mode, info.type, info.size, info.mtime, info.linkname = mode, kind, size, EPOCH, link
    return info


def layer(program):
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w") as tar:
        folders = [("usr", 0o755), ("usr/bin", 0o755), ("etc", 0o755), ("var", 0o755)]
        folders += [("var/lib", 0o755), ("run", 0o755), ("tmp", 0o1777)]
        for state in ("warren", "warren-node", "warren-relay"):
            folders.append((f"var/lib/{state}", 0o700))
        for name, mode in folders:
            tar.addfile(entry(name, mode, tarfile.DIRTYPE))
        tar.addfile(entry("usr/bin/warren", 0o755, size=len(program)), io.BytesIO(program))
        tar.addfile(entry("usr/bin/warren-wg", 0o777, tarfile.SYMTYPE, link="warren"))
    return raw.getvalue()


def digest(data):
    return "sha256:" + hashlib.sha256(data).hexdigest()


def main():
    program, architecture, version, out = sys.argv[1:]
    with open(program, "rb") as file:
        unpacked = layer(file.read())
    packed = gzip.compress(unpacked, compresslevel=9, mtime=0)
    blobs = {}

    def blob(data, kind):
        blobs[digest(data)] = data
        return {"mediaType": f"application/vnd.oci.image.{kind}", "digest": digest(data), "size": len(data)}

    def text(value):
        return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()

    made = datetime.fromtimestamp(EPOCH, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    labels = {
        "org.opencontainers.image.title": "warren",
        "org.opencontainers.image.version": version,
        "org.opencontainers.image.licenses": "Apache-2.0 OR MIT",
    }
    config = {
        "architecture": architecture,
        "os": "linux",
        "created": made,
        "config": {
            "Entrypoint": ["/usr/bin/warren"],
            "Cmd": ["daemon"],
            "Env": ["PATH=/usr/bin"],
            "Volumes": {"/var/lib/warren": {}, "/var/lib/warren-node": {}, "/var/lib/warren-relay": {}},
            "StopSignal": "SIGTERM",
            "Labels": labels,
        },
        "rootfs": {"type": "layers", "diff_ids": [digest(unpacked)]},
        "history": [{"created": made, "created_by": "make packages"}],
    }
    manifest = {
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": blob(text(config), "config.v1+json"),
        "layers": [blob(packed, "layer.v1.tar+gzip")],
    }
    named = blob(text(manifest), "manifest.v1+json")
    named["annotations"] = {
        "org.opencontainers.image.ref.name": f"localhost/warren:{version}",
        "io.containerd.image.name": f"localhost/warren:{version}",
    }
    index = {
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.index.v1+json",
        "manifests": [named],
    }
    with tarfile.open(out, "w") as tar:
        files = [("oci-layout", text({"imageLayoutVersion": "1.0.0"})), ("index.json", text(index))]
        files += [(f"blobs/{name.replace(':', '/')}", data) for name, data in sorted(blobs.items())]
        tar.addfile(entry("blobs", 0o755, tarfile.DIRTYPE))
        tar.addfile(entry("blobs/sha256", 0o755, tarfile.DIRTYPE))
        for name, data in files:
            tar.addfile(entry(name, 0o644, size=len(data)), io.BytesIO(data))


main()
