// Mends four incidents with the page alone, from the incident on the overview to a fleet that is well. The events of each are in a
// topic of its own.
import {after, before, test} from 'node:test';
import assert from 'node:assert/strict';
import {api, button, dialog, env, expected, field, page, shoot, visit} from './harness.mjs';
import {consumer, publish} from './world.mjs';

const sidecar = env('CONSOLE_SIDECAR_URL'), world = env('CONSOLE_WORLD_URL');
const within = 120_000; // ms until an incident has begun or ended, on a loaded machine
const most = 12; // clicks for each
const running = []; // what ends with the tests
let consumers;

// every calls an async function again and again, a pause after it has ended.
function every(ms, f) {
  let stopped = false;
  (async () => {
    while (!stopped) {
      await f().catch(() => {}); // the store is away, perhaps
      await new Promise(resolve => setTimeout(resolve, ms));
    }
  })();
  running.push({stop: () => { stopped = true; }});
}

before(async () => {
  await api('PUT', '/v1/policies/*', {connection: {rate: 0}, publish: {rate: 0}, partitions: 1, delivery: {ack_timeout: '5s'}});
  for (const s of ['hanging', 'deployed', 'noisy']) await publish(sidecar, s, [{payload: 0, opts: {id: 'first'}}]);
  consumers = {
    hanging: consumer(sidecar, 'hanging', 'billing', e => (e.id === 'poison' ? {} : {ack: true})),
    deployed: consumer(sidecar, 'deployed', 'search', e => (e.payload === 0 ? {ack: true} : {dead: 'cannot parse the price'})),
    noisy: consumer(sidecar, 'noisy', 'mail', () => ({wait: 100})),
  };
  running.push(...Object.values(consumers));
  await publish(sidecar, 'hanging', Array.from({length: 20}, (_, i) => ({payload: i, opts: {id: i === 5 ? 'poison' : `e${i}`, key: 'customer-17'}})));
  await publish(sidecar, 'deployed', Array.from({length: 30}, (_, i) => ({payload: {price: i}, opts: {id: `e${i}`}})));
  // One tenant publishes 40 events a second, and waits where it is refused; another one is quiet. The group can do 10 a second.
  every(500, async () => {
    const results = await publish(sidecar, 'noisy', Array.from({length: 20}, () => ({payload: 1, opts: {headers: {tenant: 'noisy'}}})));
    if (results.some(r => r.code === 'rate_limited')) await new Promise(resolve => setTimeout(resolve, 30_000));
  });
  every(1000, () => publish(sidecar, 'noisy', [{payload: 1, opts: {headers: {tenant: 'quiet'}}}]));
});
after(() => running.forEach(r => r.stop()));

let clicks;
const click = locator => {
  clicks++;
  return locator.click();
};

// begun opens the overview, and waits for the incident whose text has these words.
async function begun(text) {
  clicks = 0;
  await visit('');
  const incident = page.getByRole('listitem').filter({hasText: text});
  await incident.waitFor({timeout: within});
  return incident;
}

// ended goes back to the overview, and holds that the incident ends.
async function ended(incident, name) {
  await click(page.getByRole('link', {name: /^Overview/}));
  await page.locator('.incident, .calm').first().waitFor();
  await incident.waitFor({state: 'detached', timeout: within});
  assert.ok(clicks <= most, `${clicks} clicks`);
  await shoot(page, `${name}-mended`);
  console.log(`${name}: ${clicks} clicks`);
}

test('dead letters of a bad deployment are redriven after the fix', async () => {
  const incident = await begun(/search has given up 30 events of deployed/);
  await shoot(page, 'overview');
  await click(incident.getByRole('link'));
  await page.getByText('30 dead letters').waitFor();
  await page.getByText('cannot parse the price').first().waitFor();
  consumers.deployed.handle = () => ({ack: true}); // the deployment is mended
  await click(button('Redrive all 30…'));
  await click(button('Redrive', dialog()));
  await page.getByText('30 of 30 redriven').waitFor();
  await page.getByText('No dead letters match.').waitFor();
  await shoot(page, 'redriven');
  await ended(incident, 'dead-letters');
});

test('an event on which a consumer hangs is skipped', async () => {
  const incident = await begun(/billing.*hanging|hanging.*billing/);
  await click(incident.getByRole('link'));
  await page.getByText('Earlier events of the same keys are in flight').first().waitFor();
  await shoot(page, 'stuck');
  await click(button('Skip the oldest event of partition 0'));
  await click(button('Show what that does', dialog()));
  await dialog().getByText('1 skipped').waitFor();
  await shoot(page, 'skip');
  await click(button('Move the group', dialog()));
  await page.getByText('1 event skipped.').waitFor();
  await page.getByText('Caught up.').waitFor();
  await ended(incident, 'stuck');
});

test('a noisy tenant is slowed down', async () => {
  const incident = await begun(/mail.*noisy|noisy.*mail/);
  await click(incident.getByRole('link'));
  await page.getByRole('region', {name: 'Lag'}).waitFor();
  await click(page.getByRole('link', {name: 'Limits'}));
  await field('publish.rate').fill('2');
  await field('publish.burst').fill('2');
  await field('publish.per').fill('header:tenant');
  await click(button('Review 3 changes…'));
  await click(button('Save', dialog()));
  await dialog().waitFor({state: 'detached'});
  await page.getByRole('status').getByText(/acked by/).waitFor();
  await shoot(page, 'slowed');
  await ended(incident, 'noisy');
  const results = await publish(sidecar, 'noisy', [{payload: 1, opts: {headers: {tenant: 'another'}}}]);
  assert.equal(results[0].code, undefined, 'other tenants are not slowed down');
});

test('a store that goes away and comes back is seen, and nothing is lost', async () => {
  expected.push(/status of 50[234]/);
  await fetch(`${world}/store/down`, {method: 'POST'});
  const incident = await begun(/The store does not take events/);
  await incident.getByText('critical').waitFor();
  await publish(sidecar, 'hanging', [{payload: 1, opts: {id: 'spooled', key: 'k'}}]);
  await page.getByText(/in (a|the|its) spool|wait in/).first().waitFor({timeout: within});
  await shoot(page, 'store-away');
  await click(incident.getByRole('link'));
  await page.getByRole('region', {name: 'Health'}).getByText(/^away/).waitFor({timeout: within});
  await shoot(page, 'sidecar-away');
  await fetch(`${world}/store/up`, {method: 'POST'});
  await page.getByRole('region', {name: 'Health'}).getByText(/^ok/).waitFor({timeout: within});
  await ended(incident, 'store');
  const {stores: [{store}]} = await api('GET', '/v1/stores');
  assert.equal((await api('GET', `/v1/stores/${store}/topics/hanging/events/spooled`)).event.id, 'spooled');
});
