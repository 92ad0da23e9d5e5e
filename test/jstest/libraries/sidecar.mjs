// Starts a sidecar and an endpoint for what it pushes. SLUICE_SIDECAR is the sidecar's program.
import { spawn } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";

// listen starts an endpoint that takes the requests that isGood lets in, and hands them over by next.
export async function listen(t, isGood) {
  const requests = [];
  const waiting = [];
  const server = createServer(async (request, response) => {
    const came = { body: Buffer.concat(await request.toArray()).toString(), headers: request.headers };
    if (!isGood(came)) return response.writeHead(401).end();
    response.writeHead(204).end();
    waiting.length > 0 ? waiting.shift()(came) : requests.push(came);
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  t.after(() => server.closeAllConnections() ?? server.close());
  return {
    url: `http://127.0.0.1:${server.address().port}`,
    next: () => requests.shift() ?? new Promise((resolve) => waiting.push(resolve)),
  };
}

// startSidecar starts a sidecar that pushes topics of these names, in the formats of the names, and returns its folder and its listeners.
export async function startSidecar(t, url, formats, more = "") {
  const dir = mkdtempSync(join(tmpdir(), "sluice-libraries-"));
  t.after(() => rmSync(dir, { recursive: true, force: true }));
  const file = (name, text) => { writeFileSync(join(dir, name), text, { mode: 0o600 }); return join(dir, name); };
  const any = ["--listen", "--replay-listen", "--ops-listen"].flatMap((flag) => [flag, "127.0.0.1:0"]);
  const secrets = (...list) => file("secret", list.join("\n"));
  const start = async () => {
    const policies = file("policies.yaml", `[{name: "*", partitions: 1, connection: {rate: 0}, publish: {rate: 0},
      delivery: {max_attempts: 1000, backoff: {min: 10ms, max: 100ms}}}]`);
    const push = file("push.yaml", formats.map((format) =>
      `- {topic: ${format}, group: g, from: earliest, format: ${format}, url: "${url}"${more}}`).join("\n"));
    const child = spawn(process.env.SLUICE_SIDECAR, [...any, "--data-dir", join(dir, "data"), "--policies", policies, "--push", push],
      { stdio: ["ignore", "pipe", "ignore"] });
    t.after(() => new Promise((resolve) => { child.once("exit", resolve); child.kill("SIGKILL"); }));
    return JSON.parse(await new Promise((resolve) => createInterface({ input: child.stdout }).once("line", resolve)));
  };
  return { secrets, start };
}
