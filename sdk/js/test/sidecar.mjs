// Starts the real sidecar, for tests: SLUICE_BIN names the folder of the program, without it bin/ of the repository.
import {spawn} from "node:child_process"
import {mkdtemp, rm, writeFile} from "node:fs/promises"
import net from "node:net"
import {tmpdir} from "node:os"
import {join} from "node:path"
import {createInterface} from "node:readline"
import {EventBus} from "@sluice-bus/sluice"

const program = join(process.env.SLUICE_BIN ?? join(import.meta.dirname, "../../../bin"), "sluice-sidecar")
const policies = `
- name: "*"
  connection: {rate: 0, burst: 0}
  publish: {rate: 0, burst: 0}
  delivery: {backoff: {min: 10ms, max: 50ms}}
`

/** A sidecar that ends with the test, and can be killed and started again before. */
export class Sidecar {
  #args
  #process
  url

  static async start(t, {args = [], policy = policies, auth} = {}) {
    const sidecar = new Sidecar()
    const dir = await mkdtemp(join(tmpdir(), "sluice-js-"))
    await writeFile(join(dir, "policies.yaml"), policy)
    if (auth) {
      await writeFile(join(dir, "auth.yaml"), auth)
      args = [...args, "--auth-config", join(dir, "auth.yaml")]
    }
    const listeners = ["--ops-listen", "127.0.0.1:0", "--replay-listen", "127.0.0.1:0"]
    sidecar.#args = ["--data-dir", join(dir, "data"), "--policies", join(dir, "policies.yaml"), ...listeners, ...args]
    await sidecar.up()
    t.after(async () => {
      await sidecar.kill()
      await rm(dir, {recursive: true, force: true})
    })
    return sidecar
  }

  async up() {
    const listen = this.url ? new URL(this.url).host : "127.0.0.1:0"
    const child = this.#process = spawn(program, [...this.#args, "--listen", listen], {stdio: ["ignore", "pipe", "pipe"]})
    let log = ""
    child.stderr.on("data", data => log += data)
    const ready = await new Promise((resolve, reject) => {
      createInterface({input: child.stdout}).once("line", line => resolve(JSON.parse(line)))
      child.once("error", reject)
      child.once("exit", code => reject(new Error(`the sidecar ended with ${code}: ${log}`)))
    })
    this.url = `http://${ready.listen}`
  }

  async kill(signal = "SIGKILL") {
    const child = this.#process
    if (child.exitCode !== null || child.signalCode !== null) return
    const ended = new Promise(resolve => child.once("exit", resolve))
    child.kill(signal)
    await ended
  }

  /** A bus that ends with the test. */
  bus(t, options = {}) {
    return busOf(t, {url: this.url, ...options})
  }

  async status(topic, group) {
    return (await fetch(`${this.url}/v1/topics/${topic}/groups/${group}`)).json()
  }
}

export function busOf(t, options) {
  const bus = new EventBus({logger: {warn() {}, error() {}}, minPauseMs: 10, maxPauseMs: 200, ...options})
  t.after(() => bus.close())
  return bus
}

/** A TCP proxy whose connections can be cut, and whose answers can be held back. */
export class Proxy {
  #sockets = new Set()
  #held
  #server
  url

  static async start(t, target) {
    const {hostname, port} = new URL(target)
    const proxy = new Proxy()
    proxy.#server = net.createServer(client => {
      const server = net.connect(port, hostname)
      for (const [from, to] of [[client, server], [server, client]]) {
        proxy.#sockets.add(from)
        from.on("error", () => {}).on("close", () => {
          proxy.#sockets.delete(from)
          to.destroy()
        })
      }
      client.on("data", data => server.write(data))
      server.on("data", async data => {
        await proxy.#held
        client.write(data)
      })
    })
    await new Promise(resolve => proxy.#server.listen(0, "127.0.0.1", resolve))
    proxy.url = `http://127.0.0.1:${proxy.#server.address().port}`
    t.after(() => {
      proxy.#server.close()
      proxy.cut()
    })
    return proxy
  }

  cut() {
    for (const socket of this.#sockets) socket.destroy()
  }

  /** Holds the sidecar's bytes back until the function that it returns is called. */
  hold() {
    let go
    this.#held = new Promise(resolve => go = resolve)
    return go
  }
}

/** Waits until the function returns something true. */
export async function until(f) {
  for (const end = Date.now() + 60_000; ; await new Promise(resolve => setTimeout(resolve, 5))) {
    const value = await f()
    if (value) return value
    if (Date.now() > end) throw new Error(`it did not come to pass: ${f}`)
  }
}
