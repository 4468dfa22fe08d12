"""An object store that gives keys which end by themselves (STS AssumeRole), as large installations have one."""

from __future__ import annotations

import base64
import json
import secrets

from trainhouse.deploy.local.servers.seaweedfs import StoreServer

STS_ROLE = "arn:aws:iam::role/ranks"


class StsStore(StoreServer):
    """SeaweedFS with its STS, and one role that may do everything: a lease's policy cuts it down."""

    def options(self) -> dict[str, str | int]:
        anything = {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": ["s3:*", "sts:*"], "Resource": ["*"]}]}
        trust = {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Principal": "*", "Action": ["sts:AssumeRole"]}]}
        key = base64.b64encode(secrets.token_bytes(32)).decode()
        config = {
            "sts": {"tokenDuration": "1h", "maxSessionLength": "12h", "issuer": "seaweedfs-sts", "signingKey": key},
            "policies": [{"name": "anything", "document": anything}],
            "roles": [{"roleName": "ranks", "roleArn": STS_ROLE, "attachedPolicies": ["anything"], "trustPolicy": trust}],
        }
        path = self.folder / "iam.json"
        path.write_text(json.dumps(config))
        return super().options() | {"s3.iam": "true", "s3.iam.config": str(path)}
