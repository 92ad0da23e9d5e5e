// Looks after groups, dead letters, scheduled events, sidecars, usage and the audit log, with a control plane and a sidecar.
import {after, before, test} from 'node:test';
import assert from 'node:assert/strict';
import {readFileSync} from 'node:fs';
import {api, authBase, base, button, dialog, env, expected, fits, page, topic, until, visit} from './harness.mjs';
import {consumer, publish} from './world.mjs';

const sidecar = env('CONSOLE_SIDECAR_URL'), guarded = env('CONSOLE_GUARDED_SIDECAR_URL');
const hostile = '<img src=x onerror="fault(\'a script ran\')">';
const hostileName = hostile.replaceAll(' ', '_'); // names have no spaces
const application = {Authorization: 'Bearer application'};
let store;
const consumers = [];

before(async () => {
  await until('a store', async () => (store = (await api('GET', '/v1/stores')).stores[0]?.store));
  await api('PUT', '/v1/policies/*', {connection: {rate: 0}, publish: {rate: 0}});
  await api('PUT', `/v1/policies/${topic}`, {partitions: 2});
  await until('the limits to arrive', async () => (await api('GET', '/v1/sidecars')).sidecars.every(s => s.versions['*'] && s.versions[topic]));
  for (const [url, headers] of [[sidecar, {}], [guarded, application]]) {
    await publish(url, topic, Array.from({length: 40}, (_, i) => ({payload: {n: i, text: hostile}, opts: {id: `e${i}`, key: hostile, headers: {x: hostile}}})), headers);
    await publish(url, topic, [{payload: 1, opts: {id: 'later', key: hostile, delay_ms: 3_600_000}}, {payload: 1, opts: {id: hostileName, delay_ms: 7_200_000}}], headers);
    // Three kinds of dead letters, and a group that holds one event of each partition.
    consumers.push(consumer(url, topic, 'billing', e => ({dead: e.payload.n % 3 === 0 ? hostile : 'no stock'}), headers));
    consumers.push(consumer(url, topic, hostileName, e => (e.payload.n === 39 ? {} : {ack: true}), headers));
    consumers.push(consumer(url, topic, 'audit', () => ({}), headers));
  }
  const total = url => fetch(`${url}/v1/topics/${topic}/dlq?limit=1`, {headers: url === guarded ? application : {}}).then(r => r.json()).then(d => d.total);
  await until('dead letters', async () => (await total(sidecar)) === 40 && (await total(guarded)) === 40);
});
after(() => consumers.forEach(c => c.stop()));

const row = text => page.getByRole('row').filter({hasText: text});
const groups = `#/topics/${topic}/groups`;
const letters = (query = {}) => `#/topics/${topic}/dead-letters?${new URLSearchParams(query)}`;

test('groups are listed with what holds them up, and lead to their members and partitions', async () => {
  await visit('#/groups');
  await row('audit').first().getByRole('link', {name: 'audit'}).waitFor();
  await visit(groups);
  await row(hostileName).waitFor();
  await page.getByRole('link', {name: 'audit', exact: true}).click();
  await page.getByRole('region', {name: 'Members'}).getByText('edge-1').first().waitFor();
  await page.getByRole('region', {name: 'Members'}).getByText(/It pulls over HTTP|Earlier events of the same keys|as many unacked/).first().waitFor();
  assert.equal(await page.locator('.partitions tbody tr').count(), 2);
  await button('Copy as…').click();
  await dialog().getByText(`sluice groups show ${topic} audit --store ${store} --control-plane-url ${base}`).waitFor();
});

test('a group is paused with a reason, slowed down and resumed', async () => {
  await visit(`${groups}/audit`);
  for (const [press, confirm, done] of [['Pause…', 'Pause', g => g.paused], ['Resume…', 'Resume', g => g.paused === false]]) {
    await button(press).click();
    assert.ok(await button(confirm, dialog()).isDisabled(), 'a reason is wanted');
    await dialog().getByLabel('Reason, for the audit log').fill(`${confirm} by ${hostile}`);
    await button(confirm, dialog()).click();
    await dialog().waitFor({state: 'detached'});
    await page.getByRole('status').getByText(/acked by/).waitFor();
    assert.ok(done((await api('GET', `/v1/policies/${topic}`)).groups.audit));
  }
  await button('Slow down…').click();
  await dialog().getByLabel('Events a second, to all members together; 0 is no limit').fill('12.5');
  await dialog().getByLabel('Reason, for the audit log').fill('it floods');
  await button('Save', dialog()).click();
  await page.getByText('12.5', {exact: false}).first().waitFor();
  assert.deepEqual((await api('GET', `/v1/policies/${topic}`)).groups.audit, {paused: false, rate: 12.5});
});

test('a seek shows what it does before it does it', async () => {
  await visit(`${groups}/audit`);
  const place = async () => (await api('GET', `/v1/stores/${store}/topics/${topic}/groups/audit`)).lag;
  assert.equal(await place(), 40);
  await button('Seek…').click();
  await dialog().getByLabel('It goes on at').selectOption('latest');
  await button('Show what that does', dialog()).click();
  await dialog().getByText('40 skipped').waitFor();
  assert.equal(await place(), 40);
  await button('Move the group', dialog()).click();
  await page.getByText('40 events skipped.').waitFor();
  assert.equal(await place(), 0);
  await button('Seek…').click();
  await dialog().getByLabel('It goes on at').selectOption('afterId');
  await dialog().getByLabel('Id of the event').fill('no-such-event');
  expected.push(/status of 404/);
  await button('Show what that does', dialog()).click();
  await dialog().getByRole('alert').waitFor();
  await dialog().getByLabel('It goes on at').selectOption('earliest');
  await button('Show what that does', dialog()).click();
  await dialog().getByText('40 events').waitFor();
  await button('Move the group', dialog()).click();
  await page.getByText('40 of 40 events to be delivered again.').waitFor();
});

test('dead letters are found by reason, redriven and discarded', async () => {
  const total = async (query = '') => (await api('GET', `/v1/stores/${store}/topics/${topic}/dlq?limit=1${query}`)).total;
  await visit('#/dead-letters');
  await row('billing').getByRole('link', {name: '40'}).click();
  await page.getByText('40 dead letters').waitFor();
  await page.locator('.reasons').getByRole('button', {name: 'no stock'}).click();
  await page.getByText('26 dead letters').waitFor();
  assert.match(page.url(), /reason=no\+stock/);
  consumers[0].handle = () => ({ack: true}); // the consumer is mended
  await page.getByRole('checkbox', {name: 'Select e1', exact: true}).check();
  await button('Redrive 1 selected…').click();
  await button('Redrive', dialog()).click();
  await page.getByText('1 of 1 redriven').waitFor();
  await until('one less', async () => (await total()) === 39);
  await button('Redrive all 25…').click();
  await dialog().getByLabel('How many a second').fill('5');
  await button('Redrive', dialog()).click();
  await page.getByText(/\d+ of 25 redriven/).waitFor();
  await button('Stop').click();
  await page.getByText('stopped; do the same again for the rest').waitFor();
  await until('an end of acks', async () => (await total('&reason=no%20stock')) < 25);
  const left = await total('&reason=no%20stock');
  assert.ok(left > 0, 'the redrive stops');
  await page.getByText(`${left} dead letter`).waitFor();
  await button(/^Redrive all/).click();
  await button('Redrive', dialog()).click();
  await page.getByText('No dead letters match.').waitFor();
  await visit(letters({group: 'billing'}));
  await button('Discard all 14…').click();
  assert.ok(await button('Discard', dialog()).isDisabled());
  await dialog().getByLabel(/Type billing/).fill('billing');
  await button('Discard', dialog()).click();
  await page.getByText('No dead letters match.').waitFor();
  assert.equal(await total(), 0);
});

test('scheduled events are listed and cancelled', async () => {
  await visit(`#/topics/${topic}/scheduled`);
  await page.getByText('2 scheduled events').waitFor();
  await row('later').getByText(/in (5\d|60) min/).waitFor();
  await button('Cancel later').click();
  await button('Cancel the event', dialog()).click();
  await page.getByText('1 scheduled event', {exact: true}).waitFor();
});

test('a sidecar has a page with its health', async () => {
  await visit('#/fleet');
  await page.getByRole('link', {name: 'edge-1'}).click();
  await page.getByRole('region', {name: 'Health'}).getByText('embedded').first().waitFor();
  await page.getByRole('region', {name: 'Groups'}).getByText('audit').waitFor();
});

test('usage and the audit log are saved as CSV', async () => {
  await visit('#/usage');
  await row(topic).first().waitFor();
  for (const [path, wanted] of [['#/usage', `${topic},`], ['#/audit', 'it floods']]) {
    await visit(path);
    const [download] = await Promise.all([page.waitForEvent('download'), button('Download CSV').click()]);
    assert.ok(readFileSync(await download.path(), 'utf8').includes(wanted));
  }
  await page.getByRole('searchbox').fill('it floods');
  await until('the filter', async () => (await page.locator('.audit > tbody > tr').count()) === 1);
});

test('a viewer is told why each button does nothing, and sees no key and no payload', async () => {
  expected.push(/status of 401/);
  await visit('', authBase);
  await page.getByLabel('Token').fill(env('CONSOLE_VIEWER_TOKEN'));
  await page.keyboard.press('Enter');
  await page.locator('header').getByText('viewer', {exact: true}).waitFor();
  for (const [path, needs] of [[`${groups}/audit`, 'operator'], [letters({group: 'billing'}), 'operator'], [`#/topics/${topic}/scheduled`, 'operator']]) {
    await page.evaluate(path => { location.hash = path; }, path);
    await page.getByText(`Your role is viewer; this needs ${needs}.`).first().waitFor();
    await page.locator('main table tbody tr').first().waitFor();
    const free = page.locator('main button:enabled', {hasText: /Pause|Resume|Seek|Slow|Skip|Redrive|Discard|Cancel/});
    assert.equal(await free.count(), 0, `${path} has a button that does something`);
    for (const b of await page.locator('main button:disabled').all()) assert.match((await b.getAttribute('title')) ?? '', /Your role is viewer; this needs (operator|admin)\./);
    // Reasons, ids and group names are no content of events; keys and headers are.
    assert.doesNotMatch(await page.locator('main').innerText(), /"key"|"payload"|"headers"/);
  }
});

test('the pages fit, with hostile names in them', async () => {
  await publish(sidecar, topic, [{payload: {n: 0}, opts: {id: 'fit', key: hostile}}]);
  consumers[0].handle = () => ({dead: hostile});
  await api('PUT', `/v1/stores/${store}/topics/${topic}/groups/billing/cursor`, {from: 'earliest'});
  await until('dead letters again', async () => (await api('GET', `/v1/stores/${store}/topics/${topic}/dlq?limit=1`)).total > 2);
  await fits(['groups', `topics/${topic}/groups`, `topics/${topic}/groups/audit`, `topics/${topic}/groups/${encodeURIComponent(hostileName)}`, 'dead-letters',
    `topics/${topic}/dead-letters`, `topics/${topic}/scheduled`, 'fleet', 'fleet/edge-1', 'usage', 'audit'],
  () => page.locator('main table tbody tr, main .empty').first().waitFor());
});
