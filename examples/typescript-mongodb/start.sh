: "${MONGODB_URI:?is not set; it names a replica set, such as mongodb://127.0.0.1:27017/?replicaSet=rs0}"
[[ $MONGODB_URI =~ ^([^/]+//[^/?]+)/?[^?]*(\?.*)?$ ]]
export MONGODB_URI=${BASH_REMATCH[1]}/sluice_typescript_$$${BASH_REMATCH[2]}
sidecar typescript --outbox "$MONGODB_URI#outbox"
command -v npm >/dev/null || { echo "this example needs Node.js 20 or later, with npm; on Debian: apt-get install nodejs npm" >&2; exit 1; }
npm_flags=(--ignore-scripts --no-audit --no-fund --loglevel=error)
# The SDK of this checkout; an application has it, and the compiler, from npm.
[ -d ../sdk/js/node_modules ] || (cd ../sdk/js && npm ci "${npm_flags[@]}") >&2
[ -f ../sdk/js/dist/mongo.js ] || (cd ../sdk/js && node build.mjs) >&2
cd typescript-mongodb
npm ci "${npm_flags[@]}" >&2
../../sdk/js/node_modules/.bin/tsc
node dist/main.js
