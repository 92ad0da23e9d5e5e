// Uses the limits, policies and fleet of the console as a platform team does.
import {beforeEach, test} from 'node:test';
import assert from 'node:assert/strict';
import {api, authBase, base, button, dialog, env, expected, field, fits, focused, open, page, shoot, topic, until, visit} from './harness.mjs';

beforeEach(reset);

const put = (doc, user) => api('PUT', `/v1/policies/${topic}`, doc, user ? {'Sluice-User': user} : {});
const get = () => api('GET', `/v1/policies/${topic}`);
const glob = topic.slice(0, -1) + '*'; // of that topic, and more specific than other globs
const start = {publish: {rate: 100, burst: 100}};

// reset makes a known beginning for each test.
async function reset() {
  await put(start);
  await api('DELETE', '/v1/policies/made.up.*');
  await api('DELETE', `/v1/policies/${glob}`);
}

// cells are the texts of a row, once it is there.
async function cells(row) {
  await row.waitFor();
  return (await row.locator('td').allInnerTexts()).map(t => t.trim());
}

const row = name => page.getByRole('row').filter({has: page.getByRole('link', {name, exact: true})});

// number reads a rate as the page writes it.
const number = async locator => Number((await locator.innerText()).replace(/[,\s]|\/s.*/g, ''));
const accepted = () => number(page.locator('dd.accepted'));
const drawing = () => page.locator('.graph svg .allowed').getAttribute('d');

// everyone waits until all sidecars have acked the change that was just made. Until its dialog closes, what the page says
// is about the change before.
const everyone = async () => {
  await dialog().waitFor({state: 'detached'});
  await page.getByRole('status').getByText(/acked by (\d+) of \1 sidecars?, [\d.]+ s after saving/).waitFor();
};

test('the home page has what is wrong first, and the rates of the fleet', async () => {
  await visit('');
  const incident = page.getByRole('listitem').filter({hasText: 'edge-us-2'});
  await incident.getByText('warning').waitFor();
  await incident.getByText('Start it again').waitFor();
  await page.getByRole('img', {name: 'Published per second'}).waitFor();
  await page.getByRole('row').filter({hasText: 'mongodb'}).waitFor();
  await incident.getByRole('link', {name: /Sidecar/}).click();
  await until('the page of the link', () => page.evaluate(() => location.hash === '#/fleet/edge-us-2'));
});

test('the topics page shows every topic, its rates as they move, and who is refused', async () => {
  await visit('#/topics');
  const mine = row(topic).first();
  const spark = () => mine.locator('svg .allowed').getAttribute('d');
  const first = await spark();
  await until('the sparkline to move', async () => (await spark()) !== first);
  assert.match(await mine.locator('td[data-label="Accepted /s"]').innerText(), /^[\d.,]+$/);
  await until('a refusal to be shown with its sidecar', async () => /\S \d/.test(await mine.locator('td[data-label="Refused at"]').innerText()));

  await until('the reasons of its refusals', async () => /rate_limited [\d,]+/.test(await mine.locator('td[data-label="Refused in 1 h"]').innerText()));

  await button('Refused /s').click();
  await page.mouse.move(0, 0);
  const refused = async () => Promise.all((await page.locator('td[data-label="Refused /s"]').all()).map(number));
  await until('the most refused to be on top', async () => {
    const list = await refused();
    return list.length > 0 && list[0] > 0 && list[0] >= list[list.length - 1];
  });
  assert.match(page.url(), /sort=-denied_per_second/);

  await page.getByRole('searchbox').fill(topic);
  await until('the filter to hide other topics', async () => (await page.locator('.topics tbody tr').count()) === 1);
  await page.reload();
  await until('the same rows at the same address', async () => (await page.locator('.topics tbody tr').count()) === 1);
  await page.getByRole('searchbox').fill('no.such.topic');
  await page.getByText('No topic begins with').waitFor();
  await page.keyboard.press('Escape');
  await mine.waitFor();
  await visit(`#/topics/${topic}`);
  const reason = page.locator('section[aria-label="Rates"] tr', {hasText: 'rate_limited'});
  await until('the reasons on the page of the topic', async () => (await number(reason.locator('td').first())) > 0);
});

test('every page says how to get what it shows at a command line', async () => {
  await visit('#/policies');
  await button('Copy as…').click();
  await dialog().getByText(`curl -s ${base}/v1/policies`).waitFor();
  await dialog().getByText(`sluice policy list --control-plane-url ${base}`).waitFor();
  await page.keyboard.press('Escape');
  await dialog().waitFor({state: 'detached'});
});

test('a hidden page asks for nothing', async () => {
  await page.clock.install();
  await visit('#/topics');
  await row(topic).first().waitFor();
  const hide = hidden => page.evaluate(value => {
    Object.defineProperty(document, 'hidden', {configurable: true, get: () => value});
    document.dispatchEvent(new Event('visibilitychange'));
  }, hidden);
  await hide(true);
  await page.clock.runFor(3000); // what was on its way ends
  let asked = 0;
  page.on('request', () => asked++);
  await page.clock.runFor(30_000);
  assert.equal(asked, 0);
  await hide(false);
  await until('the page to ask again', async () => {
    await page.clock.runFor(100);
    return asked > 0;
  });
});

test('a limit is changed, arrives everywhere, acts, and is rolled back', async () => {
  await visit(`#/topics/${topic}`);
  await until('a load above the limit', async () => (await number(page.locator('dd.bad'))) > 0);
  const high = await accepted();
  await field('publish.rate').fill('20');
  await field('publish.burst').fill('20');
  await button('Review 2 changes…').click();
  const line = dialog().getByRole('row').filter({hasText: 'publish.rate'});
  assert.deepEqual(await cells(line), ['100', '20']);
  await button('Save', dialog()).click();
  await everyone();
  assert.equal((await get()).publish.rate, 20);
  await until('the accepted rate to fall', async () => (await accepted()) < high / 2);
  const low = await drawing();
  await until('the graph to move', async () => (await drawing()) !== low);
  await shoot(page, 'topic-after-change');

  await page.getByRole('link', {name: 'History'}).click();
  await page.getByRole('heading', {name: 'History'}).waitFor();
  const {versions} = await api('GET', `/v1/policies/${topic}/history`);
  const earlier = versions[1].version;
  await button(`Roll back to version ${earlier}…`).click();
  await dialog().getByText('publish.rate').waitFor();
  await shoot(page, 'rollback');
  await button('Roll back', dialog()).click();
  await everyone();
  assert.equal((await get()).publish.rate, 100);
  await page.getByText(`rolled back to ${earlier}`).first().waitFor();
  await page.getByRole('link', {name: 'Topic', exact: true}).click();
  await until('the accepted rate to rise', async () => (await accepted()) > high / 2);
});

test('a change is reviewed: what it would have refused, and why it is made', async () => {
  await visit(`#/policies/${topic}`);
  await field('publish.rate').fill('20');
  await button('Review 1 change…').click();
  const effects = dialog().getByRole('region', {name: 'What it would have done'});
  const [published, before, after] = (await cells(effects.getByRole('row').filter({hasText: topic})))
    .map(t => Number(t.split(' ')[0].replaceAll(',', '')));
  assert.ok(published > after && after > before && before > 0, `${published} published, ${before} refused, then ${after}`);
  await dialog().getByLabel('Reason, for the audit log').fill('the bank is slow');
  await shoot(page, 'effects');
  await button('Save', dialog()).click();
  await everyone();
  await page.getByRole('region', {name: 'History'}).getByText('the bank is slow').waitFor();
  const {entries: [latest]} = await api('GET', '/v1/audit?limit=1');
  assert.equal(latest.reason, 'the bank is slow');
  await page.getByRole('region', {name: 'In force'}).getByText('every field').click();
  const origin = async path => (await page.locator('.inforce tr').filter({hasText: path}).first().innerText()).split(/\s*\t\s*/);
  assert.deepEqual(await origin('publish.rate'), ['publish.rate', '20', 'this policy']);
  assert.equal((await origin('delivery.max_attempts'))[2], 'default');
});

test('the buttons of a change stay where they are when its effects come', async () => {
  let come;
  const held = new Promise(resolve => { come = resolve; });
  await page.route('**/effects', async route => {
    await held;
    await route.continue();
  });
  await visit(`#/policies/${topic}`);
  await field('publish.rate').fill('20');
  await button('Review 1 change…').click();
  await dialog().getByText('Looking at the last hour').waitFor();
  const place = await button('Save', dialog()).boundingBox();
  come();
  await cells(dialog().getByRole('row').filter({hasText: topic}));
  assert.deepEqual(await button('Save', dialog()).boundingBox(), place);
});

test('edits that are not saved survive a reload, until they are undone', async () => {
  await visit(`#/policies/${topic}`);
  await field('publish.rate').fill('44');
  await page.getByText('Whole policy as JSON').click();
  await page.getByRole('textbox', {name: /Partitions, deduplication/}).fill('{"publish": {"rate": 44, "burst": 100}, "durability": {"spool_max_bytes": 9007199254740993}}');
  await until('the tab to keep them', () => page.evaluate(() => Object.values(sessionStorage).some(text => text.includes('9007199254740993'))));
  await page.reload();
  await page.getByText('These edits are not saved yet').waitFor();
  assert.equal(await field('publish.rate').inputValue(), '44');
  await page.getByText('Whole policy as JSON').click();
  assert.match(await page.getByRole('textbox', {name: /Partitions, deduplication/}).inputValue(), /9007199254740993/);
  await button('Undo').click();
  await until('the tab to forget them', () => page.evaluate(() => sessionStorage.length === 0));
  await page.reload();
  await until('the saved value', async () => (await field('publish.rate').inputValue()) === '100');
  assert.equal(await page.getByText('These edits are not saved yet').count(), 0);
});

test('an emptied input inherits from the next policy', async () => {
  await visit(`#/topics/${topic}`);
  await field('publish.rate').fill('');
  assert.match(await field('publish.rate').getAttribute('placeholder'), /\((default|from .+)\)$/);
  await button('Review 1 change…').click();
  assert.match(await dialog().locator('td.to').innerText(), /\((default|from .+)\)/);
  await page.keyboard.press('Escape');
  await button('Undo').click();
  assert.equal(await field('publish.rate').inputValue(), '100');
});

test('a topic is paused and resumed', async () => {
  await visit(`#/topics/${topic}`);
  await button('Pause…').click();
  await button('Pause', dialog()).click();
  await everyone();
  assert.equal((await get()).paused, true);
  await until('nothing to be accepted', async () => (await accepted()) === 0);
  await button('Resume…').click();
  await button('Resume', dialog()).click();
  await everyone();
  assert.equal((await get()).paused, undefined);
  await until('events to be accepted', async () => (await accepted()) > 0);
});

test('a group that a policy pauses is shown, and resumed, limited and paused again', async () => {
  await api('PUT', `/v1/policies/${glob}`, {groups: {'mail.v2': {paused: true, rate: 7}}});
  await visit('#/topics');
  await row(topic).getByText('mail.v2 paused').or(row(topic).getByText(/groups paused/)).waitFor();
  await visit('#/policies');
  await row(glob).getByText('group mail.v2 paused').waitFor();
  await row(glob).getByText('groups.mail.v2.rate 7').waitFor();

  // The topic inherits the pause, and ends it for itself.
  await page.getByRole('link', {name: 'Topics', exact: true}).click();
  await row(topic).getByRole('rowheader').getByRole('link').click();
  await page.locator('.actions').getByText(/mail\.v2 paused|groups paused/).waitFor();
  const group = page.getByRole('group', {name: 'mail.v2'});
  assert.equal(await group.getByLabel('Paused').locator('option').first().innerText(), `yes (from ${glob})`);
  assert.equal(await group.getByLabel('Rate').getAttribute('placeholder'), `7 (from ${glob})`);
  await group.getByLabel('Paused').selectOption('no');
  await group.getByLabel('In flight').fill('200');
  await button('Review 2 changes…').click();
  const line = dialog().getByRole('row').filter({hasText: 'groups.mail.v2.paused'});
  assert.deepEqual(await cells(line), [`true (from ${glob})`, 'false']);
  await button('Save', dialog()).click();
  await everyone();
  assert.deepEqual((await get()).groups, {'mail.v2': {paused: false, max_inflight: 200}});
  await page.locator('.actions').getByText('mail.v2 paused').waitFor({state: 'detached'});

  // A group that no policy knows, in the glob.
  await page.getByLabel('Which policy to change').selectOption(glob);
  await page.getByLabel('Name of a consumer group').fill('search');
  await page.keyboard.press('Enter');
  await focused('groups.search.paused');
  await field('groups.search.paused').selectOption('yes');
  await field('groups.search.rate').fill('-1');
  await page.getByRole('group', {name: 'search'}).getByText('must be at least 0').waitFor();
  await field('groups.search.rate').fill('5');
  await field('groups.mail.v2.rate').fill('');
  await shoot(page, 'groups');
  await button('Review 3 changes…').click();
  await button('Save', dialog()).click();
  await everyone();
  assert.deepEqual((await api('GET', `/v1/policies/${glob}`)).groups, {'mail.v2': {paused: true}, search: {paused: true, rate: 5}});
  await page.locator('.actions').getByText(/search paused|groups paused/).waitFor();
});

test('a change that came first is shown, and not overwritten', async () => {
  expected.push(/status of 412/);
  await visit(`#/topics/${topic}`);
  await field('publish.rate').fill('90');
  await put({publish: {rate: 100, burst: 150, bytes_per_second: 5_000_000}}, 'jonas');
  await button('Review 1 change…').click();
  await button('Save', dialog()).click();
  await dialog().getByRole('heading', {name: 'Someone else changed this policy'}).waitFor();
  await dialog().getByText('jonas').waitFor();
  await dialog().getByText('publish.bytes_per_second').waitFor();
  await shoot(page, 'conflict');
  assert.equal((await get()).publish.rate, 100);
  await button('Apply my changes…').click();
  await button('Save', dialog()).click();
  await everyone();
  assert.deepEqual((await get()).publish, {rate: 90, burst: 150, bytes_per_second: 5_000_000});
});

test('a change made elsewhere is shown where the user edits nothing', async () => {
  await visit(`#/topics/${topic}`);
  await until('the form', async () => (await field('publish.rate').inputValue()) === '100');
  await put({publish: {rate: 77, burst: 100}});
  await until('the new value', async () => (await field('publish.rate').inputValue()) === '77');
});

test('what the control plane refuses is said at its field', async () => {
  expected.push(/status of 422/);
  await visit(`#/topics/${topic}`);
  await field('publish.rate').fill('-1');
  await page.getByText('Not yet: publish.rate must be at least 0.').waitFor();
  assert.ok(await button('Review 1 change…').isDisabled(), 'what is invalid cannot be saved');
  await field('publish.rate').fill('5');
  await field('delivery.ack_timeout').fill('48h'); // which only the control plane knows to be too long
  await button('Review 2 changes…').click();
  await focused('delivery.ack_timeout');
  assert.equal(await field('delivery.ack_timeout').getAttribute('aria-invalid'), 'true');
  const [, error] = (await field('delivery.ack_timeout').getAttribute('aria-describedby')).split(' ');
  await until('the reason', async () => /must be .* not /.test(await page.locator(`[id="${error}"]`).innerText()));
  await shoot(page, 'refused-fields');
  assert.deepEqual((await get()).publish, start.publish);

  await button('Undo').click();
  await page.getByText('Whole policy as JSON').click();
  await page.getByRole('textbox', {name: /Partitions, deduplication/}).fill('{"colour": "blue"}');
  await page.getByRole('button', {name: /^Review/}).click();
  await page.getByText(/colour: unknown key/).waitFor();
});

test('the fields without an input are edited as JSON', async () => {
  await visit(`#/topics/${topic}`);
  await page.getByText('Whole policy as JSON').click();
  const text = page.getByRole('textbox', {name: /Partitions, deduplication/});
  await text.fill('{"publish": {"rate": 100');
  await page.getByText(/^Not a policy/).waitFor();
  assert.ok(await page.getByRole('button', {name: /^Review/}).isDisabled());
  // A number that JavaScript cannot hold comes through as it was typed.
  await text.fill('{"publish": {"rate": 60, "burst": 100}, "durability": {"spool_max_bytes": 9007199254740993}}');
  assert.equal(await field('publish.rate').inputValue(), '60');
  await button('Review 2 changes…').click();
  await button('Save', dialog()).click();
  await everyone();
  const response = await fetch(`${base}/v1/policies/${topic}`);
  assert.match(await response.text(), /"spool_max_bytes":\s*9007199254740993\b/);
});

test('numbers that JavaScript cannot hold come back as they were read', async () => {
  const text = '[9223372036854775807,9007199254740993.0,1e400,1e-400,0.1000000000000000000001,1.2345678901234566e-07,1000000000,0.1,-1.5e+300]';
  await visit('#/policies');
  const again = await page.evaluate(async text => {
    const {parseJSON} = await import('/api.js');
    return {text: JSON.stringify(parseJSON(text)), computable: parseJSON('[0.30000000000000004,1.2345678901234566e-07,1e9]').every(Number.isFinite)};
  }, text);
  assert.deepEqual(again, {text: text.replace('e-07', 'e-7'), computable: true});
});

test('a policy is made, and deleted after a confirmation', async () => {
  expected.push(/status of 404/);
  await visit('#/policies');
  const name = page.getByLabel(/Name of a new policy/);
  await name.fill('no good');
  await page.getByText('A-Z a-z 0-9').waitFor();
  await name.fill('made.up.*');
  await page.keyboard.press('Enter');
  await page.getByText('no such policy').waitFor();
  await field('publish.rate').fill('5');
  await field('publish.burst').fill('5');
  await button('Review 2 changes…').click();
  await button('Save', dialog()).click();
  await everyone();
  await button('Delete…').click();
  await dialog().getByText('inherit from').waitFor();
  await button('Cancel', dialog()).click();
  assert.ok(await api('GET', '/v1/policies/made.up.*'));
  await button('Delete…').click();
  await button('Delete', dialog()).click();
  await page.getByText('The deletion of made.up.*').waitFor();
  assert.equal((await api('GET', '/v1/policies/made.up.*')).code, 'not_found');
  await page.getByText('deleted', {exact: true}).first().waitFor();
});

test('the fleet page shows versions, refusals with their reason, unmet concerns, and shares', async () => {
  const {sidecars} = await api('GET', '/v1/sidecars');
  const node = sidecars.find(s => s.connected && s.versions[topic]).node_id;
  let unmet = {[topic]: 'w:3'};
  await page.route('**/v1/sidecars*', async route => {
    const response = await route.fetch();
    const data = await response.json();
    const mine = data.sidecars.find(s => s.node_id === node);
    mine.unmet_concerns = unmet;
    mine.rejected = {policy: topic, version: mine.versions[topic] + 1, reason: 'publish.rate: no such rate here'};
    await route.fulfill({response, json: data});
  });
  await visit('#/fleet');
  await page.getByText('publish.rate: no such rate here').waitFor();
  await page.getByText('unmet concern').waitFor();
  await page.getByText(`write concern: ${topic} (w:3)`).waitFor();
  assert.match(await page.locator('.fleet tbody tr').nth(1).innerText(), /no such rate here|is gone/, 'trouble comes first');
  await shoot(page, 'fleet-open');
  unmet = undefined;
  await page.getByText('unmet concern').waitFor({state: 'detached'});
  await page.unrouteAll({behavior: 'wait'});
  await page.getByRole('link', {name: node}).click();
  await page.getByRole('heading', {name: 'Policies in force'}).waitFor();
  await until('its topics', async () => (await page.getByRole('link', {name: topic}).count()) > 0);
});

test('sidecars that lag or refuse are named while a change arrives', async () => {
  const {sidecars} = await api('GET', '/v1/sidecars');
  const [late, bad] = [sidecars.find(s => s.connected && s.versions[topic]), {node_id: 'stubborn', connected: true, versions: {[topic]: 1}}];
  await page.route('**/v1/sidecars*', async route => {
    const response = await route.fetch();
    const data = await response.json();
    for (const s of data.sidecars) if (s.node_id === late.node_id) s.versions = late.versions;
    data.sidecars.push({...bad, last_seen: new Date().toISOString(), rejected: {policy: topic, version: 99, reason: 'not with me'}});
    await route.fulfill({response, json: data});
  });
  await visit(`#/topics/${topic}`);
  await field('publish.rate').fill('95');
  await button('Review 1 change…').click();
  await button('Save', dialog()).click();
  await page.getByText(`Not yet: ${late.node_id}`).waitFor();
  await page.getByText('refuses it: not with me').waitFor();
  await shoot(page, 'arriving');
  await page.unrouteAll({behavior: 'wait'});
  await everyone();
});

test('the audit log says who changed what, page by page', async () => {
  await put({publish: {rate: 55, burst: 100}}, 'jonas');
  await page.route('**/v1/audit?limit=100*', route => route.continue({url: route.request().url().replace('limit=100', 'limit=2')}));
  await visit('#/audit');
  await page.locator('.audit tbody tr').first().waitFor();
  const rows = page.locator('.audit > tbody > tr');
  assert.equal(await rows.count(), 2);
  assert.match(await rows.first().innerText(), /jonas/);
  await rows.first().locator('summary').click();
  assert.match(await rows.first().locator('.diff').innerText(), /publish\.rate\s+100\s+55/);
  await button('Show older').click();
  await until('older entries', async () => (await rows.count()) === 4);
});

test('two versions of a policy are compared', async () => {
  await put({publish: {rate: 55, burst: 100}});
  const {versions} = await api('GET', `/v1/policies/${topic}/history`);
  await visit(`#/policies/${topic}`);
  await page.getByText('Compare versions').click();
  assert.match(await page.locator('.compare .diff').innerText(), /publish\.rate\s+100\s+55/);
  await page.getByLabel('From version').selectOption(String(versions[0].version));
  await page.locator('.compare').getByText('No field differs.').waitFor();
});

test('the schemas of a policy are listed, and one that breaks is refused with its reasons', async () => {
  expected.push(/status of (404|422)/);
  await api('PUT', '/v1/policies/shop', {schema: {json_schema: {type: 'object'}}});
  await api('PUT', '/v1/policies/shop', {schema: {json_schema: {type: ['object', 'null']}}});
  await visit('#/policies/shop');
  const schemas = page.getByRole('region', {name: 'Schemas'});
  await schemas.getByRole('listitem').first().getByText('JSON Schema').click();
  assert.match(await schemas.locator('pre').first().innerText(), /"null"/);
  assert.equal(await schemas.getByRole('listitem').count(), 2);
  await schemas.getByText('Try a draft').click();
  await schemas.getByLabel('JSON Schema', {exact: true}).last().fill('{"type": "object", "required": ["id"]}');
  await button('Compare', schemas).click();
  await schemas.getByText('not compatible').waitFor();
  await schemas.getByText('requires the property "id", and version 2 does not').waitFor();
  await schemas.getByText('it would refuse 1').waitFor();
  await page.getByText('Whole policy as JSON').click();
  await page.getByRole('textbox', {name: /Partitions, deduplication/}).fill('{"schema": {"json_schema": {"type": "object", "required": ["id"]}}}');
  await button('Review 1 change…').click();
  await page.locator('.json .error').getByText('requires the property "id", and version 2 does not').waitFor();
  await page.locator('.json .error').getByText('allows no null here, and version 2 does').waitFor();
});

test('while the control plane is away, old data is marked and a retry is offered', async () => {
  expected.push(/ERR_FAILED/);
  await visit('#/topics');
  await row(topic).first().waitFor();
  await page.route('**/v1/**', route => route.abort());
  await page.getByRole('alert').getByText('No connection since').waitFor();
  await page.getByText(/^as of /).waitFor();
  await row(topic).first().waitFor();
  await shoot(page, 'away');
  // The page asks again by itself, too, and may take the button away before it is clicked.
  const again = await button('Try again').elementHandle();
  await page.unrouteAll({behavior: 'wait'});
  await again.evaluate(b => b.click());
  await page.getByRole('alert').waitFor({state: 'detached'});
  await page.getByText(/^as of /).waitFor({state: 'detached'});
});

test('a name that is given goes into the audit log', async () => {
  await visit(`#/topics/${topic}`);
  await page.getByLabel('You are').fill('maria');
  await field('publish.rate').fill('81');
  await button('Review 1 change…').click();
  await button('Save', dialog()).click();
  await everyone();
  assert.match((await get()).updated_by, /^maria /);
});

test('a token is asked for, kept for the tab alone, and its role respected', async () => {
  expected.push(/status of 401/);
  await visit(`#/topics/${topic}`, authBase);
  const token = page.getByLabel('Token');
  await token.fill('wrong');
  await page.keyboard.press('Enter');
  await page.getByText('This token is not valid.').waitFor();
  await shoot(page, 'sign-in');
  await token.fill(env('CONSOLE_VIEWER_TOKEN'));
  await page.keyboard.press('Enter');
  await page.locator('header').getByText('viewer', {exact: true}).waitFor();
  await button('Pause…').waitFor();
  assert.ok(await button('Pause…').isDisabled());
  assert.match(await button('Pause…').getAttribute('title'), /role is viewer; this needs editor/);
  assert.ok(await field('publish.rate').isDisabled());
  await page.getByText('Your role is viewer; this needs editor.').first().waitFor();
  await shoot(page, 'viewer');
  await page.goto(`${authBase}/#/topics/${topic}/events`);
  await page.getByText('Your role is viewer; this needs reader.').waitFor();
  for (const [name, role] of [['Publish a test event…', 'operator'], ['Download', 'reader']]) {
    assert.ok(await button(name).isDisabled());
    assert.equal(await button(name).getAttribute('title'), `Your role is viewer; this needs ${role}.`);
  }
  assert.deepEqual(await page.evaluate(() => [Object.keys(localStorage).length, document.cookie]), [0, '']);

  await page.goto(`${authBase}/#/topics/${topic}`);
  await button('Sign out').click();
  await token.fill(env('CONSOLE_ADMIN_TOKEN'));
  await page.keyboard.press('Enter');
  await page.locator('header').getByText('admin', {exact: true}).waitFor();
  await until('the controls to work', async () => button('Pause…').isEnabled());
});

// tab goes on until the focus is on what is wanted, and holds that each stop can
// be seen.
async function tab(what, wanted) {
  for (let i = 0; i < 80; i++) {
    await page.keyboard.press('Tab');
    const at = await page.evaluate(() => {
      const e = document.activeElement;
      const shown = e.matches('.segments input') ? e.nextElementSibling : e;
      const style = getComputedStyle(shown);
      return {is: e.name || e.textContent.trim(), link: e.getAttribute('href'), body: e === document.body, outline: style.outlineStyle, width: style.outlineWidth};
    });
    if (at.body) continue; // the browser's own controls come between
    assert.ok(at.outline !== 'none' && at.width !== '0px', `the focus cannot be seen on ${JSON.stringify(at)}`);
    if (wanted(at)) return;
  }
  assert.fail(`the keyboard does not lead to ${what}`);
}

test('everything works by keyboard', async () => {
  await visit('#/topics');
  await row(topic).first().waitFor();
  await page.keyboard.press('/');
  await page.keyboard.type(topic);
  await tab('the topic', at => at.link === `#/topics/${topic}`);
  await page.keyboard.press('Enter');
  await page.getByRole('heading', {name: topic}).waitFor();
  await field('publish.rate').waitFor();
  await tab('the rate', at => at.is === 'publish.rate');
  await page.keyboard.type('66'); // Tab has selected what was there
  await page.keyboard.press('Escape');
  assert.equal(await field('publish.rate').inputValue(), '100');
  await page.keyboard.press('Control+A');
  await page.keyboard.type('65');
  await page.keyboard.press('Enter');
  await dialog().waitFor();
  await page.keyboard.press('Escape');
  await dialog().waitFor({state: 'detached'});
  await focused('publish.rate');
  await page.keyboard.press('Enter');
  await dialog().waitFor();
  await page.keyboard.press('Enter');
  await everyone();
  assert.equal((await get()).publish.rate, 65);

  await page.keyboard.press('Escape');
  await tab('its history', at => at.is === 'History');
  await page.keyboard.press('Enter');
  await page.getByRole('heading', {name: 'History'}).waitFor();
  await tab('the rollback', at => at.is === 'Roll back…');
  await page.keyboard.press('Enter');
  await dialog().waitFor();
  await page.keyboard.press('Enter');
  await everyone();
  assert.equal((await get()).publish.rate, 100);
});

test('every page fits in light and dark, on a desk and on a phone', async () => {
  await fits(['', 'topics', `topics/${topic}`, 'policies', `policies/${topic}`, 'fleet', 'usage?by=day', 'audit']);
});

test('a sidecar that is missing is forgotten', async () => {
  const gone = (await api('GET', '/v1/sidecars')).sidecars.find(s => s.missing).node_id;
  await visit('#/fleet');
  await button('Forget…').click();
  await button('Forget', dialog()).click();
  await page.getByText(gone).first().waitFor({state: 'detached'});
  assert(!(await api('GET', '/v1/sidecars')).sidecars.some(s => s.node_id === gone));
});
