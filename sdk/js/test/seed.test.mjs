// Code that was written for the library of the document that Sluice grew from ("Part 4: backpressure + rate limits, replay/export API,
// exactly-once-ish consumer, and a tiny bench harness") runs with another import. Each file in seed/ is quoted from there; its name
// begins with the section, its first line is the file that the document names, and only the imports are changed.
import assert from "node:assert/strict"
import {execFileSync, spawn} from "node:child_process"
import {randomUUID} from "node:crypto"
import {mkdtemp, rm} from "node:fs/promises"
import {join} from "node:path"
import {createInterface} from "node:readline"
import {test} from "node:test"
import {build} from "esbuild"
import {MongoClient} from "mongodb"
import {MemoryDedupe} from "@sluice-bus/sluice"
import {Sidecar, until} from "./sidecar.mjs"

const here = import.meta.dirname
const uri = process.env.MONGODB_URI

/** Compiles a quoted file into the package's folder, where its imports are found. */
async function compile(t, name) {
  const outdir = await mkdtemp(join(here, "../dist/seed-"))
  t.after(() => rm(outdir, {recursive: true}))
  const entryPoints = [join(here, "seed", name + ".ts")]
  await build({entryPoints, outdir, outExtension: {".js": ".mjs"}, format: "esm", bundle: true, packages: "external"})
  return join(outdir, name + ".mjs")
}

test("the quoted files, and what applications write, fit the types", () => {
  execFileSync(process.execPath, [join(here, "../node_modules/typescript/bin/tsc"), "-p", here], {stdio: "inherit"})
})

for (const [name, member] of [["4a-bench-publish", "published"], ["4b-bench-subscribe", "n"]]) {
  test(name, async t => {
    const sidecar = await Sidecar.start(t)
    const env = {...process.env, SLUICE_URL: sidecar.url, N: "200"}
    const child = spawn(process.execPath, [...process.execArgv, await compile(t, name)], {env, stdio: ["ignore", "pipe", "inherit"]})
    t.after(() => child.kill())
    const line = await new Promise((resolve, reject) => {
      createInterface({input: child.stdout}).once("line", resolve)
      child.once("exit", code => reject(new Error(`it ended with ${code}`)))
    })
    assert.equal(JSON.parse(line)[member], 200)
  })
}

for (const kind of ["memory", "mongodb"]) {
  test(`3b-exactly-once with a store in ${kind}`, {skip: kind === "mongodb" && !uri ? "MONGODB_URI is not set" : false}, async t => {
    const bus = (await Sidecar.start(t)).bus(t)
    const {subscribeExactlyOnce} = await import(await compile(t, "3b-exactly-once"))
    let store = new MemoryDedupe()
    if (kind === "mongodb") {
      const {MongoDedupe} = await import(await compile(t, "3a-dedupe-mongo"))
      const client = await new MongoClient(uri).connect()
      const db = client.db("js-" + randomUUID())
      t.after(() => db.dropDatabase().finally(() => client.close()))
      store = new MongoDedupe(db)
    }
    await store.mark("orders", "g", "done")
    const handled = []
    await subscribeExactlyOnce(bus, "orders", "g", store, async ({id}) => handled.push(id), {from: "earliest"})
    for (const id of ["a", "done", "b"]) await bus.publish("orders", 1, {id, key: "k"})
    await until(() => store.seen("orders", "g", "b"))
    assert.deepEqual(handled, ["a", "b"])
  })
}
