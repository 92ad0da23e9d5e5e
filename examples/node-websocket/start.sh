sidecar node-websocket
command -v node >/dev/null || { echo "this example needs Node.js 18 or later, with npm; on Debian: apt-get install nodejs npm" >&2; exit 1; }
cd node-websocket
# Node.js before version 22 has no WebSocket of its own, and gets the library ws.
if [ ! -d node_modules/ws ] && ! node -e 'process.exit(globalThis.WebSocket ? 0 : 1)'; then
  npm ci --ignore-scripts --no-audit --no-fund --loglevel=error >&2
fi
node main.mjs
