sidecar typescript
command -v npm >/dev/null || { echo "this example needs Node.js 20 or later, with npm; on Debian: apt-get install nodejs npm" >&2; exit 1; }
npm_flags=(--ignore-scripts --no-audit --no-fund --loglevel=error)
# The SDK of this checkout; an application has it, and the compiler, from npm.
[ -d ../sdk/js/node_modules ] || (cd ../sdk/js && npm ci "${npm_flags[@]}") >&2
[ -f ../sdk/js/dist/index.js ] || (cd ../sdk/js && node build.mjs) >&2
cd typescript
npm install --no-package-lock "${npm_flags[@]}" >&2
../../sdk/js/node_modules/.bin/tsc
node dist/main.js
