// Builds dist/: each entry as one file for import and one for require, and the types of both.
import {execFileSync} from "node:child_process"
import {readdirSync, readFileSync, rmSync, writeFileSync} from "node:fs"
import {build} from "esbuild"

process.chdir(import.meta.dirname)
rmSync("dist", {recursive: true, force: true})
execFileSync("node_modules/.bin/tsc", {stdio: "inherit"})
for (const [format, extension] of [["esm", ".js"], ["cjs", ".cjs"]]) {
  await build({
    entryPoints: ["src/index.ts", "src/state.ts", "src/mongo.ts"], outdir: "dist", bundle: true, format, outExtension: {".js": extension},
    target: "es2022", platform: "neutral", external: ["ws", "@sluice-bus/sluice"], logLevel: "warning",
  })
}
// Types for require differ in the names of the files alone.
for (const name of readdirSync("dist").filter(name => name.endsWith(".d.ts"))) {
  const text = readFileSync(`dist/${name}`, "utf8")
  writeFileSync(`dist/${name.replace(".d.ts", ".d.cts")}`, text.replaceAll(/(["'])(\.\/\w+)\.js\1/g, "$1$2.cjs$1"))
}
