// A consumer without a library: it checks the signature of Standard Webhooks with what Node.js has, and answers.
import { createHmac, timingSafeEqual } from "node:crypto";
import { createServer } from "node:http";

const secret = Buffer.from(process.env.WEBHOOK_SECRET.replace("whsec_", ""), "base64");

function isSigned(headers, body) {
  const { "webhook-id": id, "webhook-timestamp": timestamp, "webhook-signature": signatures = "" } = headers;
  const want = createHmac("sha256", secret).update(`${id}.${timestamp}.`).update(body).digest();
  const equal = (text) => text.length === 47 && timingSafeEqual(Buffer.from(text.slice(3), "base64"), want);
  return Math.abs(Date.now() / 1000 - timestamp) < 300 && signatures.split(" ").some(equal);
}

createServer(async (request, response) => {
  const body = Buffer.concat(await request.toArray());
  if (!isSigned(request.headers, body)) return response.writeHead(401).end("not signed\n");
  console.log(`attempt ${request.headers["sluice-attempt"]}:`, JSON.parse(body).payload);
  response.writeHead(204).end();
}).listen(process.env.PORT, "127.0.0.1");
