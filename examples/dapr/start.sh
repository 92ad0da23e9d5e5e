command -v npm >/dev/null || { echo "this example needs Node.js 18 or later, with npm; on Debian: apt-get install nodejs npm" >&2; exit 1; }
export APP_PORT=$((20000 + RANDOM % 10000)) NO_COLOR=1
sidecar dapr --policies dapr/policies.yaml --dapr-app-id order-processor --dapr-app "http://127.0.0.1:$APP_PORT" --dapr-grpc-listen 127.0.0.1:0
export DAPR_HTTP_PORT=${SLUICE_URL##*:}
cd dapr
[ -d node_modules/@dapr ] || npm ci --ignore-scripts --no-audit --no-fund --loglevel=error >&2
node order-processor.mjs &
processor=$!
pids+=("$processor")
# A consumer group begins with the events that come after it, so checkout waits for it.
export no_proxy=127.0.0.1
until curl -sf -o "$work/group" "$SLUICE_URL/v1/topics/orders-dead/groups/order-processor.orderpubsub"; do
  kill -0 "$processor"
  sleep 0.1
done
node checkout.mjs
wait "$processor"
