command -v node >/dev/null || { echo "this example needs Node.js 18 or later; on Debian: apt-get install nodejs" >&2; exit 1; }
export PORT=$((20000 + RANDOM % 10000)) no_proxy=127.0.0.1
WEBHOOK_SECRET=whsec_$(head -c 32 /dev/urandom | base64)
export WEBHOOK_SECRET
echo "$WEBHOOK_SECRET" >"$work/secret"
sed "s/:3000/:$PORT/" push/push.yaml >"$work/push.yaml"
sidecar push --push "$work/push.yaml"
until curl -sf -o "$work/group" "$SLUICE_URL/v1/topics/orders/groups/mail"; do sleep 0.1; done
publish() { curl -sf -o "$work/answer" -d "{\"order\":$1}" "$SLUICE_URL/v1/topics/orders/events"; }
publish 1
echo "order 1 is published: it waits, since nothing listens yet"
node push/receiver.mjs &
pids+=("$!")
publish 2
until curl -sf "$SLUICE_URL/v1/topics/orders/groups/mail" | grep -q '"mail","lag":0'; do sleep 0.1; done
echo "both orders are delivered and acked"
echo "somebody else posts: $(curl -s -d '{"payload":"forged"}' -H 'webhook-timestamp: 1' "http://127.0.0.1:$PORT/orders")"
