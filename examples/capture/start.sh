: "${MONGODB_URI:?is not set; it names a replica set, such as mongodb://127.0.0.1:27017/?replicaSet=rs0}"
[[ $MONGODB_URI =~ ^([^/]+//[^/?]+)/?[^?]*(\?.*)?$ ]]
database=sluice_capture_$$
captured=${BASH_REMATCH[1]}/$database${BASH_REMATCH[2]}
sidecar capture --capture "$captured#products=products"
curl -fsS -X POST "$SLUICE_URL/v1/captures/products/reread"
go run ./capture "$database"
