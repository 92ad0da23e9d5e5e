// The package as it is installed: its size, import and require in an empty folder, types, and what it does with OpenTelemetry.
import assert from "node:assert/strict"
import {execFileSync} from "node:child_process"
import {mkdtemp, readFile, rm, writeFile} from "node:fs/promises"
import {tmpdir} from "node:os"
import {join} from "node:path"
import {test} from "node:test"
import {gzipSync} from "node:zlib"
import {context, propagation} from "@opentelemetry/api"
import {transform} from "esbuild"
import {Sidecar} from "./sidecar.mjs"

const root = join(import.meta.dirname, "..")
const mostBytes = 12 << 10

test("the core has no dependency, and at most 12 KiB", async t => {
  const {dependencies} = JSON.parse(await readFile(join(root, "package.json"), "utf8"))
  assert.equal(dependencies, undefined)
  const {code} = await transform(await readFile(join(root, "dist/index.js"), "utf8"), {minify: true, format: "esm", target: "es2022"})
  const size = gzipSync(code, {level: 9}).length
  t.diagnostic(`${size} bytes, minified and compressed by gzip`)
  assert.ok(size <= mostBytes, `${size} bytes`)
})

test("installed into an empty folder it is imported and required, and has types for both", async t => {
  const sidecar = await Sidecar.start(t)
  const dir = await mkdtemp(join(tmpdir(), "sluice-pack-"))
  t.after(() => rm(dir, {recursive: true}))
  const env = {...process.env, SLUICE_URL: sidecar.url}
  const run = (program, ...args) => execFileSync(program, args, {cwd: dir, encoding: "utf8", env, stdio: ["ignore", "pipe", "pipe"]})
  const [{filename}] = JSON.parse(run("npm", "pack", root, "--json", "--ignore-scripts"))
  await writeFile(join(dir, "package.json"), "{}")
  run("npm", "install", "--offline", "--no-audit", "--no-fund", `./${filename}`, join(root, "node_modules/ws"))

  const use = `
    const bus = new EventBus()
    bus.publish("t", 1).then(({durability}) => console.log(durability, typeof Outbox, typeof startFrom)).then(() => bus.close())`
  const entries = [["EventBus", ""], ["Outbox", "/mongo"], ["startFrom", "/state"]]
  const lines = line => entries.map(([name, path]) => line(name, `"@sluice-bus/sluice${path}"`)).join("\n")
  await writeFile(join(dir, "a.mjs"), lines((name, path) => `import {${name}} from ${path}`) + use)
  await writeFile(join(dir, "b.cjs"), lines((name, path) => `const {${name}} = require(${path})`) + use)
  const flags = process.execArgv.filter(arg => arg.includes("websocket"))
  for (const file of ["a.mjs", "b.cjs"]) assert.equal(run(process.execPath, ...flags, file), "store function function\n")

  const typed = "import {EventBus, type Receipt} from '@sluice-bus/sluice'\nimport {MongoDedupe} from '@sluice-bus/sluice/mongo'\n" +
    "export const f = (bus: EventBus): Promise<Receipt> => bus.publish('t', 1)\nexport const D = MongoDedupe\n"
  await writeFile(join(dir, "a.mts"), typed)
  await writeFile(join(dir, "b.cts"), typed)
  const library = ["--target", "es2022", "--lib", "es2023,esnext.disposable,dom"]
  const strict = ["--noEmit", "--strict", "--module", "nodenext", "--types", "", ...library]
  run(join(root, "node_modules/.bin/tsc"), ...strict, "a.mts", "b.cts")
})

test("a handler is part of the publisher's trace, where the application has OpenTelemetry", async t => {
  const bus = (await Sidecar.start(t)).bus(t)
  const key = Symbol("traceparent")
  const of = values => ({values, getValue: k => values[k], setValue: (k, v) => of({...values, [k]: v}), deleteValue: () => of(values)})
  let current = of({})
  context.setGlobalContextManager({
    active: () => current, bind: (_, f) => f, enable() { return this }, disable() { return this },
    with(ctx, f) {
      const before = current
      current = ctx
      try {
        return f()
      } finally {
        current = before
      }
    },
  })
  propagation.setGlobalPropagator({
    inject: (ctx, carrier, setter) => ctx.getValue(key) && setter.set(carrier, "traceparent", ctx.getValue(key)),
    extract: (ctx, carrier, getter) => ctx.setValue(key, getter.get(carrier, "traceparent")), fields: () => ["traceparent"],
  })
  t.after(() => {
    context.disable()
    propagation.disable()
  })
  const trace = "0af7651916cd43dd8448eb211c80319c"
  const seen = new Promise(resolve => {
    bus.subscribe("orders", {group: "g", from: "earliest"}, () => resolve(context.active().getValue(key)))
  })
  await context.with(of({[key]: `00-${trace}-b7ad6b7169203331-01`}), () => bus.publish("orders", 1))
  assert.match(await seen, new RegExp(`^00-${trace}-`))
})
