"""An S3 server on the loopback address, moto's, with a bucket and two keys: one that may read and write, one that may read.

Signatures and rights are checked by moto, with botocore's code. Prints a line of JSON, and ends when its stdin does.

  .cache/moto/bin/python tests/remote/s3_server.py
"""
import json
import os
import sys

# The requests that make the bucket and the keys go without rights.
SETUP = 7
os.environ["INITIAL_NO_AUTH_ACTION_COUNT"] = str(SETUP)
os.environ.update(AWS_ACCESS_KEY_ID="setup", AWS_SECRET_ACCESS_KEY="setup", AWS_DEFAULT_REGION="us-east-1")
for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"):
    os.environ.pop(name, None)

import logging  # noqa: E402

import boto3  # noqa: E402
from moto.server import ThreadedMotoServer  # noqa: E402

RIGHTS = {"writer": ["s3:GetObject", "s3:ListBucket", "s3:PutObject"], "reader": ["s3:GetObject", "s3:ListBucket"]}


def main():
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    server.start()
    endpoint = "http://%s:%d" % server.get_host_and_port()
    boto3.client("s3", endpoint_url=endpoint).create_bucket(Bucket="kernels")
    iam = boto3.client("iam", endpoint_url=endpoint)
    keys = {}
    for user, actions in RIGHTS.items():
        iam.create_user(UserName=user)
        iam.put_user_policy(UserName=user, PolicyName="rights", PolicyDocument=json.dumps(
            {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": actions, "Resource": "*"}]}))
        key = iam.create_access_key(UserName=user)["AccessKey"]
        keys[user] = {"AWS_ACCESS_KEY_ID": key["AccessKeyId"], "AWS_SECRET_ACCESS_KEY": key["SecretAccessKey"]}
    print(json.dumps({"endpoint": endpoint, "keys": keys}), flush=True)
    sys.stdin.read()
    os._exit(0)


if __name__ == "__main__":
    main()
