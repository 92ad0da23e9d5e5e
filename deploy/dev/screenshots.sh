#!/usr/bin/env bash
# Takes the pictures of the console that README.md shows, of `sluice demo`: `make screenshots` builds the programs.
set -euo pipefail
cd "$(dirname "$0")/../.."
CHROMIUM=${CHROMIUM:-$(command -v chromium-headless-shell chromium chromium-browser google-chrome | head -n 1)}
export CHROMIUM
(cd test/browsertest && { [ -d node_modules/playwright-core ] || npm ci --ignore-scripts --no-audit --no-fund; })
coproc demo { exec bin/sluice demo --output json; }
pid=$demo_PID
trap 'kill "$pid" 2>/dev/null || true; wait "$pid" 2>/dev/null || true' EXIT
read -r ready <&"${demo[0]}"
console=${ready#*\"console\":\"}
mkdir -p docs/images
node test/browsertest/screenshots.mjs "${console%%\"*}" "$PWD/docs/images"
