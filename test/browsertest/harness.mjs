// What the scripts that use the console share: the browser, which reports every fault, and small helpers. The scripts know the
// control plane by its URL alone:
//
//   CONSOLE_URL           a control plane where everybody may do everything
//   CONSOLE_TOPIC         a topic there whose load is well above 20 events/s and
//                         some of which 100/s for each sidecar refuses
//   CONSOLE_AUTH_URL      one that asks for tokens, and two of these:
//   CONSOLE_VIEWER_TOKEN  CONSOLE_ADMIN_TOKEN
//   CHROMIUM              the browser's path
//   CONSOLE_SHOTS         the folder that screenshots go to; without it there are none
//   CONSOLE_HALF          0 or 1: of the pages that fits looks at, the even ones or the odd ones; without it all
import {after, before, beforeEach, afterEach, test} from 'node:test';
import assert from 'node:assert/strict';
import {mkdirSync} from 'node:fs';
import axe from 'axe-core';
import {chromium} from 'playwright-core';

export const env = name => process.env[name] ?? assert.fail(`${name} is not set`);
export const base = env('CONSOLE_URL');
export const authBase = env('CONSOLE_AUTH_URL');
export const topic = env('CONSOLE_TOPIC');
const shots = process.env.CONSOLE_SHOTS;
export const patience = 60_000; // ms that anything may take on a loaded machine, as testkit.Patience

export let context, page;
let browser;
let faults; // what the browser complained about
export let expected; // what it may complain about, regular expressions

before(async () => {
  if (shots) mkdirSync(shots, {recursive: true});
  browser = await chromium.launch({
    executablePath: env('CHROMIUM'), headless: true, chromiumSandbox: process.getuid?.() !== 0,
  });
});
after(() => browser?.close());

beforeEach(async () => {
  faults = [];
  expected = [];
  ({context, page} = await open());
});

afterEach(async () => {
  // Before the page is closed: requests that end with it are no fault.
  const unexpected = faults.filter(fault => !expected.some(e => e.test(fault)));
  await context.close();
  assert.deepEqual(unexpected, [], 'the browser complained');
});

// open makes a browser window in which every error, every violation of the
// Content-Security-Policy and every request to another origin is a fault.
export async function open(options = {}) {
  const context = await browser.newContext({viewport: {width: 1280, height: 900}, ...options});
  context.setDefaultTimeout(patience);
  await context.exposeFunction('fault', fault => faults.push(fault));
  await context.addInitScript(() => addEventListener('securitypolicyviolation', e => globalThis.fault(`CSP: ${e.violatedDirective} ${e.blockedURI} ${e.sourceFile}:${e.lineNumber}`)));
  context.on('request', request => {
    const url = new URL(request.url());
    if (url.protocol.startsWith('http') && ![base, authBase].includes(url.origin)) faults.push(`another origin: ${request.url()}`);
  });
  const page = await context.newPage();
  page.on('pageerror', err => faults.push(`exception: ${err.stack}`));
  page.on('console', message => ['error', 'warning'].includes(message.type()) && faults.push(`console: ${message.text()}`));
  return {context, page};
}

// api is another user of the control plane, at a command line.
export async function api(method, path, body, headers = {}) {
  const response = await fetch(base + path, {
    method, headers: {'Content-Type': 'application/json', ...headers}, body: body && JSON.stringify(body),
  });
  const text = await response.text();
  assert.ok(response.ok || response.status === 404, `${method} ${path}: ${response.status} ${text}`);
  return text ? JSON.parse(text) : null;
}

export const field = name => page.locator(`[name="${name}"]`);
export const button = (name, inside = page) => inside.getByRole('button', {name});
export const dialog = () => page.getByRole('dialog');

// until waits for something that no element tells.
export async function until(what, ask) {
  const end = Date.now() + patience;
  for (;;) {
    if (await ask()) return;
    if (Date.now() > end) assert.fail('waited too long for ' + what);
    await new Promise(resolve => setTimeout(resolve, 100));
  }
}

// focused waits until a field has the focus. Effects give it after the page has been drawn.
export const focused = name => until(`the focus on ${name}`, () => page.evaluate(name => document.activeElement.name === name, name));

export async function visit(path, at = base) {
  await page.goto(`${at}/${path}`);
  await page.locator('h1').waitFor();
}

export async function shoot(page, name) {
  if (shots) await page.screenshot({path: `${shots}/${name}.png`, fullPage: true});
}

// accessible holds that axe finds nothing to object to; rules are those that it looks at, undefined all.
async function accessible(what, rules) {
  if (!await page.evaluate(() => 'axe' in globalThis)) await page.evaluate(axe.source);
  const options = {resultTypes: ['violations'], ...(rules && {runOnly: {type: 'rule', values: rules}})};
  const {violations} = await page.evaluate(options => globalThis.axe.run(options), options);
  assert.deepEqual(violations.map(v => `${v.id}: ${v.help}: ${v.nodes.slice(0, 3).map(n => n.html).join(' ')}`), [], `axe objects to ${what}`);
}

const colourRules = ['color-contrast', 'link-in-text-block'];

const half = process.env.CONSOLE_HALF;

// fits holds that pages are accessible and no wider than the window, at three sizes in light and dark, and takes a picture of each.
export async function fits(paths, ready = async () => {}) {
  for (const path of paths.filter((_, i) => !half || i % 2 === Number(half))) {
    await page.goto('about:blank'); // a hash alone would not load the page again
    await visit(`#/${path}`);
    await page.locator('.empty[role=status]').waitFor({state: 'detached'});
    await ready(path);
    for (const width of [1280, 390, 2560]) {
      await page.setViewportSize({width, height: 900});
      for (const colorScheme of ['light', 'dark']) {
        await page.emulateMedia({colorScheme});
        const wide = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
        assert.ok(wide <= 0, `${path} is ${wide} px too wide at ${width}`);
        // Colours are the same at each size, a wide window has what a desk has, and dark pages differ in colours alone.
        if (colorScheme === 'light' && width !== 2560) await accessible(`${path} at ${width}`);
        if (colorScheme === 'dark' && width === 1280) await accessible(`${path} in dark`, colourRules);
        await shoot(page, `${(path || 'overview').split('?')[0].replaceAll('/', '-')}-${colorScheme}-${width}`);
      }
    }
  }
}
