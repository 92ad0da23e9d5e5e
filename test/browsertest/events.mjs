// Reads, follows, publishes and saves the events of a topic, with a control plane and a sidecar.
import {before, test} from 'node:test';
import assert from 'node:assert/strict';
import {readFileSync} from 'node:fs';
import {api, base, button, dialog, expected, fits, page, shoot, topic, until, visit} from './harness.mjs';

let store;
const hostile = '<img src=x onerror="fault(\'a script ran\')">';
const events = () => page.locator('.events > tbody > tr:not(.more)');
const address = (query = {}) => `#/topics/${topic}/events?${new URLSearchParams(query)}`;

// publish publishes events {payload, opts}.
async function publish(list) {
  const response = await fetch(`${base}/v1/stores/${store}/topics/${topic}/events`, {
    method: 'POST', headers: {'Content-Type': 'application/x-ndjson'}, body: list.map(e => JSON.stringify(e)).join('\n'),
  });
  const {results} = await response.json();
  assert.ok(results.every(r => r.id), JSON.stringify(results[0]));
}

before(async () => {
  store = (await api('GET', '/v1/stores')).stores[0].store;
  await api('PUT', `/v1/policies/${topic}`, {publish: {rate: 0}, partitions: 2});
  await api('PUT', '/v1/policies/*', {connection: {rate: 0}});
  await until('the limits to arrive', async () => (await api('GET', '/v1/sidecars')).sidecars.every(s => s.versions['*'] && s.versions[topic]));
  for (let i = 0; i < 5; i++) await publish(Array.from({length: 1000}, (_, j) => ({payload: {n: i * 1000 + j}})));
  const ts = Date.now();
  await publish([
    {payload: {n: 1, price: 1}, opts: {ts, id: 'first', key: 'customer-1', tags: ['eu'], headers: {tenant: 'acme'}}},
    {payload: {cause: true}, opts: {ts: ts + 1, id: 'second', key: 'customer-1', caused_by: ['first'],
      headers: {traceparent: '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01'}}},
    {payload_base64: 'AP8Q', opts: {ts: ts + 2, id: 'bytes', key: 'customer-1', headers: {'content-type': 'image/x'}}},
    {payload: {[hostile]: hostile}, opts: {
      ts: ts + 3, id: hostile.replaceAll(' ', '_'), key: hostile, tags: [hostile], sid: hostile, caused_by: [hostile.replaceAll(' ', '_')], headers: {x: hostile},
    }},
  ]);
});

test('events are listed newest first, and opened as a tree, as text and as bytes', async () => {
  await visit(address());
  await until('a page of events', async () => (await events().count()) === 50);
  const mine = events().filter({hasText: '"price":1'});
  await mine.getByRole('button').click();
  const more = page.locator('.more');
  await more.getByText('price').waitFor();
  await more.getByText('acme').waitFor();
  await button('Text', more).click();
  await more.getByText('"price": 1').waitFor();
  await button('Hex', more).click();
  await more.getByText('000000  7b 22 6e').waitFor();
  await button('Show more').click();
  await until('another page', async () => (await events().count()) === 100);
});

test('events are found by key, tag, header and text, as far as the page says', async () => {
  for (const [query, count] of [[{key: 'customer-1'}, 3], [{tag: 'eu'}, 1], [{header: 'tenant=acme'}, 1], [{header: 'tenant'}, 1], [{text: '"PRICE"'}, 1], [{cause: 'first'}, 1]]) {
    await page.goto('about:blank');
    await visit(address(query));
    await until(JSON.stringify(query), async () => (await events().count()) === count);
  }
  await page.goto('about:blank');
  await visit(address({text: 'nowhere'}));
  await page.getByText('No event matches so far.').waitFor();
  await page.getByText(/^5,000 events searched, back to /).waitFor();
  await button('Go on').click();
  await page.getByText('5,004 events searched. That is all.').waitFor();
  await page.getByRole('searchbox', {name: 'Text in the payload'}).fill('price');
  await until('the filter in the address', () => page.evaluate(() => location.hash.includes('text=price')));
  await until('its event', async () => (await events().count()) === 1);
});

test('events are read from a time, an id and a position', async () => {
  const {event} = await api('GET', `/v1/stores/${store}/topics/${topic}/events/first`);
  for (const [query, wanted] of [
    [{from: 'earliest'}, '{"n":0}'], [{from: 'time', at: new Date(event.ts).toISOString()}, null], [{from: 'id', at: 'first'}, '"price":1'],
    [{from: 'position', at: `${event.partition}:${event.seq}`}, '"price":1'],
  ]) {
    await page.goto('about:blank');
    await visit(address(query));
    await events().first().filter({hasText: wanted ?? ''}).waitFor();
  }
  await page.goto('about:blank');
  await visit(address({from: 'position'}));
  await page.getByText('Where from?').waitFor();
});

test('new events are shown as they come, and wait during a pause', async () => {
  await visit(address({live: '1', key: 'live'}));
  await page.getByText('No event has come yet.').waitFor();
  const send = n => publish([{payload: {n}, opts: {key: 'live'}}, {payload: {n}, opts: {key: 'other'}}]);
  await until('the stream to begin', async () => {
    await send(-1);
    return (await events().count()) > 0;
  });
  await button('Pause').click();
  const before = await events().count();
  await send(-2);
  await page.getByText(/Paused; [1-9]\d* events? since/).waitFor();
  assert.equal(await events().count(), before);
  await button('Go on').click();
  await events().first().filter({hasText: '-2'}).waitFor();
  assert.equal(await events().filter({hasText: 'other'}).count(), 0);
});

test('a test event is published, marked, and followed to its life', async () => {
  await visit(address());
  await button('Publish a test event…').click();
  await dialog().getByLabel('Payload, as JSON').fill('{"test":');
  await dialog().getByText('This is not JSON.').waitFor();
  assert.ok(await button('Publish', dialog()).isDisabled());
  await dialog().getByLabel('Payload, as JSON').fill('{"amount": 12345678901234567890.50}');
  await dialog().getByLabel('Key').fill('tests');
  await button('Publish', dialog()).click();
  await dialog().getByText('It is in partition').waitFor();
  const id = await dialog().locator('code').innerText();
  await button('Close', dialog()).click();
  await visit(`#/topics/${topic}/events/${id}`);
  await page.getByText('12345678901234567890.50').waitFor();
  assert.match(await page.locator('.headers').innerText(), /test-event\s+anonymous/);
});

test('an event has its life, its neighbours of the same key, its causes and effects', async () => {
  await api('PUT', `/v1/stores/${store}/topics/${topic}`);
  await visit(`#/topics/${topic}/events/second`);
  const trace = page.getByRole('link', {name: '0af7651916cd43dd8448eb211c80319c'});
  assert.equal(await trace.getAttribute('href'), 'https://traces.example/trace/0af7651916cd43dd8448eb211c80319c');
  await page.getByText('No group has subscribed').waitFor();
  await page.getByRole('link', {name: 'previous of this key'}).click();
  await page.getByRole('heading', {name: 'first'}).waitFor();
  await page.getByRole('link', {name: 'Events of this topic that name it as their cause'}).click();
  await events().filter({hasText: 'cause'}).waitFor();
  await visit(`#/topics/${topic}/events/second`);
  await page.getByRole('link', {name: 'next of this key'}).click();
  await page.getByRole('heading', {name: 'bytes'}).waitFor();
  await page.getByText('000000  00 ff 10').waitFor();
  expected.push(/status of 404/);
  await visit(`#/topics/${topic}/events/nobody`);
  await page.getByText('Nothing to show').waitFor();
});

test('what led to an event and what it led to is a graph, also across topics', async () => {
  expected.push(/status of 404/); // an id that a topic does not have
  const other = `${topic}.shipped`;
  const response = await fetch(`${base}/v1/stores/${store}/topics/${other}/events`, {
    method: 'POST', headers: {'Content-Type': 'application/x-ndjson'}, body: JSON.stringify({payload: 1, opts: {id: 'third', caused_by: ['second', 'nowhere']}}),
  });
  assert.ok(response.ok, await response.text());
  await visit(`#/topics/${topic}/events/second`);
  const graph = page.getByRole('group', {name: 'Causes and effects'});
  await graph.getByRole('link', {name: `cause first of ${topic}`}).waitFor();
  assert.equal(await graph.getByRole('link').count(), 1);
  await button('Look in other topics, too').click();
  await graph.getByRole('link', {name: `effect third of ${other}`}).click();
  await page.getByRole('heading', {name: 'third'}).waitFor();
  await page.getByText('It names no cause').or(graph.getByRole('img', {name: 'cause nowhere of a topic that is not known'})).first().waitFor();
  await button('Look in other topics, too').click();
  await graph.getByRole('link', {name: `cause second of ${topic}`}).waitFor();
  await graph.getByRole('link', {name: `cause first of ${topic}`}).waitFor();
  assert.equal(await graph.locator('.edge').count(), 3);
  await shoot(page, 'causes');
});

test('what the page selects is saved as NDJSON', async () => {
  await visit(address({key: 'customer-1'}));
  const [download] = await Promise.all([page.waitForEvent('download'), button('Download').click()]);
  const lines = readFileSync(await download.path(), 'utf8').trim().split('\n').map(JSON.parse);
  assert.deepEqual(lines.map(e => e.id), ['bytes', 'second', 'first']);
  assert.equal(download.suggestedFilename(), `${topic}.ndjson`);
});

test('a topic is made, shown while it is idle, and deleted once its name is typed', async () => {
  await visit('#/topics');
  await button('New topic…').click();
  await dialog().getByLabel('Name').fill('no good');
  assert.ok(await button('Make it', dialog()).isDisabled());
  await dialog().getByLabel('Name').fill('made.here');
  await button('Make it', dialog()).click();
  await page.getByRole('heading', {name: 'made.here'}).waitFor();
  await page.getByRole('link', {name: 'Topics'}).first().click();
  await page.getByRole('link', {name: 'made.here'}).click();
  await button('Delete…').click();
  await dialog().getByText('0 events').waitFor();
  assert.ok(await button('Delete', dialog()).isDisabled());
  await dialog().getByLabel('Type made.here to confirm').fill('made.here');
  await button('Delete', dialog()).click();
  await page.getByRole('heading', {name: 'Topics'}).waitFor();
  assert.deepEqual((await api('GET', `/v1/stores/${store}/topics?prefix=made`)).topics, []);
});

test('hostile names and payloads are text', async () => {
  const id = hostile.replaceAll(' ', '_');
  await visit(address({key: hostile}));
  await events().first().getByRole('button').click();
  await page.locator('.more .tree').getByText(hostile).first().waitFor();
  await visit(`#/topics/${topic}/events/${encodeURIComponent(id)}`);
  await page.getByRole('heading', {name: id}).waitFor();
  await page.locator('.tree').getByText(hostile).first().waitFor();
  expected.push(/status of 40\d/);
  await visit(`#/topics/${encodeURIComponent(hostile)}/events/${encodeURIComponent(hostile)}?store=${encodeURIComponent(hostile)}`);
  await page.getByRole('heading', {name: hostile}).waitFor();
  assert.equal(await page.locator('img[src=x]').count(), 0);
});

test('the pages of events fit in light and dark, on a desk and on a phone', async () => {
  await fits(['', 'topics', `topics/${topic}/events`, `topics/${topic}/events/second`], async path => {
    if (path.endsWith('/events')) await events().nth(1).getByRole('button').click();
  });
});
