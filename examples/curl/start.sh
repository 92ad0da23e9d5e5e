export no_proxy=127.0.0.1
sidecar curl --policies curl/policies.yaml
curl/demo.sh
