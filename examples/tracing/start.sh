# In place of a collector: it says where it receives, and prints the tree of a trace once it has all of it.
go build -buildvcs=false -o "$work/tracing" ./tracing
exec 3< <(exec "$work/tracing" receive)
collector=$!
pids+=("$collector")
read -r endpoint <&3

export OTEL_EXPORTER_OTLP_ENDPOINT=$endpoint OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf
export OTEL_BSP_SCHEDULE_DELAY=100 # ms; spans are sent every 5 s otherwise
sidecar tracing

"$work/tracing" work
cat <&3
wait "$collector"
