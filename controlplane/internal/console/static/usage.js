// What each topic keeps and how much that is a day, and what topics and tenants used by day and month.
import {Choice, Empty, ErrorNote, Filter, html, Page, Refusals, Time, topicLink, useState, Waiting} from './ui.js';
import {api, storePath} from './api.js';
import {bytes, count, perSecond, plural} from './format.js';
import {csv, download} from './download.js';
import {useLive} from './live.js';
import {inTurns, usePolled} from './polled.js';
import {Table} from './table.js';

const most = 1000; // topics of a store
const day = 86_400_000; // ms
const leastSpan = 60_000; // ms from the first event to the last, to speak of a day

// aDay is how much of something there was a day, undefined where the events are of too short a time.
const aDay = (n, t) => (t.last_ts - t.first_ts >= leastSpan ? (n * day) / (t.last_ts - t.first_ts) : undefined);

async function read(prefix, signal) {
  const {stores} = await api.get('/v1/stores', {signal});
  const query = new URLSearchParams({limit: most, ...(prefix && {prefix})});
  const [rates, ...answers] = await inTurns([`/v1/topics?${query}`, ...stores.map(s => `${storePath(s.store, 'topics')}?${query}`)], path => api.get(path, {signal}));
  const now = new Map(rates.topics.map(t => [t.topic, t]));
  const topics = answers.flatMap((answer, i) => answer.topics.map(t => ({...t, store: stores[i].store, now: now.get(t.topic)})));
  return {topics, more: answers.some(a => a.next)};
}

const columns = [
  {title: 'Topic', sort: 'topic', className: 'code', cell: t => html`<a href=${topicLink(t.topic)}>${t.topic}</a>`, of: t => t.topic},
  {title: 'Events', sort: 'events', number: true, cell: t => count(t.events), of: t => t.events},
  {title: 'Size', sort: 'bytes', number: true, cell: t => bytes(t.bytes), of: t => t.bytes},
  {title: 'Events a day', sort: 'daily', number: true, cell: t => rounded(aDay(t.events, t), count), of: t => Math.round(aDay(t.events, t) ?? 0)},
  {title: 'Size a day', sort: 'daily_bytes', number: true, cell: t => rounded(aDay(t.bytes, t), bytes), of: t => Math.round(aDay(t.bytes, t) ?? 0)},
  {title: 'Accepted /s now', sort: 'accepted', number: true, cell: t => perSecond(t.now?.allowed_per_second), of: t => t.now?.allowed_per_second ?? 0},
  {title: 'Refused /s now', sort: 'refused', number: true, cell: t => perSecond(t.now?.denied_per_second), of: t => t.now?.denied_per_second ?? 0},
  {title: 'First event', cell: t => (t.first_ts ? html`<${Time} at=${t.first_ts} />` : '–'), of: t => t.first_ts && new Date(t.first_ts).toISOString()},
  {title: 'Last event', cell: t => (t.last_ts ? html`<${Time} at=${t.last_ts} />` : '–'), of: t => t.last_ts && new Date(t.last_ts).toISOString()},
];

const rounded = (n, show) => (n === undefined ? '–' : show(Math.round(n)));

function ordered(rows, sort) {
  const field = sort.replace(/^-/, '');
  const {of} = columns.find(c => c.sort === field) ?? columns[2];
  const turn = sort.startsWith('-') ? -1 : 1;
  return [...rows].sort((a, b) => turn * (of(a) < of(b) ? -1 : of(a) > of(b) ? 1 : 0));
}

const periods = [['', 'What is kept now'], ['day', 'Each day'], ['month', 'Each month']];

export const Usage = ({query, me}) => (query.by ? html`<${Past} query=${query} me=${me} />` : html`<${Kept} query=${query} me=${me} />`);

const pastColumns = [
  {title: 'Period', className: 'code', cell: u => u.period, of: u => u.period},
  {title: 'Topic', className: 'code', cell: u => html`<a href=${topicLink(u.topic)}>${u.topic}</a>`, of: u => u.topic},
  {title: 'Tenant', className: 'code', cell: u => u.tenant ?? html`<span class="muted">all</span>`, of: u => u.tenant ?? ''},
  {title: 'Accepted', number: true, cell: u => count(u.accepted), of: u => u.accepted},
  {title: 'Refused', number: true, cell: u => html`<span class=${u.refused ? 'bad' : 'muted'}>${count(u.refused)}</span>`, of: u => u.refused},
  {title: 'Why', className: 'where', cell: u => (u.tenant && u.refused ? 'over its limit' : html`<${Refusals} of=${u.refusals} most=${4} />`), of: u => Object.entries(u.refusals ?? {}).map(r => r.join(' ')).join(', ')},
];

const mostPages = 100; // of a CSV, of 1,000 rows each

// Past is what topics and tenants used in the days and months before.
function Past({query, me}) {
  const {by, prefix = '', from = '', cursor = ''} = query;
  const [error, setError] = useState(null);
  const asked = {by, tenants: 1, ...(prefix && {prefix}), ...(from && {from})};
  const path = '/v1/usage?' + new URLSearchParams({...asked, ...(cursor && {cursor})});
  const live = useLive(path, {every: 60_000});
  const rows = live.data?.usage;
  async function save() {
    const all = [];
    let next = '';
    for (let i = 0; i < mostPages && next !== undefined; i++) {
      const page = await api.get('/v1/usage?' + new URLSearchParams({...asked, limit: 1000, ...(next && {cursor: next})}));
      all.push(...page.usage);
      next = page.next;
    }
    download(`usage-by-${by}.csv`, [csv([pastColumns.map(c => c.title), ...all.map(u => pastColumns.map(c => c.of(u)))])], 'text/csv');
  }
  return html`
    <${Page} title="Usage" poll=${live} copy=${{path, cli: `sluice fleet usage --by ${by}${prefix && ` --prefix ${prefix}`}${from && ` --from ${from}`}`, me}}
      actions=${html`<button type="button" disabled=${!rows?.length} onClick=${() => save().then(() => setError(null), setError)}>Download CSV</button>`}>
      <div class="toolbar"><${Choice} name="by" query=${query} label="Show" options=${periods} /><${Filter} label="Topics that begin with" name="prefix" query=${query} />
        <${Filter} label="Since, such as 2026-01-31" name="from" query=${query} first=${false} /></div>
      <${ErrorNote} error=${error} />
      ${!rows ? html`<${Waiting} poll=${live} />`
        : rows.length === 0 ? html`<${Empty}><p>Nothing was published${prefix && html` to topics that begin with <code>${prefix}</code>`} in these days.</p><//>`
        : html`<${Table} name="past" columns=${pastColumns} rows=${rows} id=${u => [u.period, u.topic, u.tenant].join(' ')} query=${query} next=${live.data.next} />
          <p class="muted">Days are in UTC, the last 30 unless others are chosen. Refused events of a tenant are those over its limit. Tenants are counted where a policy has publish.per.</p>`}
    <//>`;
}

// Kept is what the stores have of topics now.
function Kept({query, me}) {
  const {prefix = '', sort = '-bytes'} = query;
  const live = usePolled(`usage ${prefix}`, signal => read(prefix, signal), 15_000);
  const rows = live.data && ordered(live.data.topics, sort);
  const save = () => download('usage.csv', [csv([[...columns.map(c => c.title), 'Store'], ...rows.map(t => [...columns.map(c => c.of(t)), t.store])])], 'text/csv');
  return html`
    <${Page} title="Usage" poll=${live} copy=${{path: '/v1/topics', cli: `sluice usage${prefix && ` --prefix ${prefix}`} --store STORE`, me}}
      actions=${html`<button type="button" disabled=${!rows?.length} onClick=${save}>Download CSV</button>`}>
      <div class="toolbar"><${Choice} name="by" query=${query} label="Show" options=${periods} /><${Filter} label="Topics that begin with" name="prefix" query=${query} />
        <span class="muted" role="status">${rows && `${plural(rows.length, 'topic')}, ${count(rows.reduce((n, t) => n + t.events, 0))} events, ${bytes(rows.reduce((n, t) => n + t.bytes, 0))}`}
          ${live.data?.more && `, of the first ${count(most)} of a store`}</span></div>
      ${!rows ? html`<${Waiting} poll=${live} />`
        : rows.length === 0 ? html`<${Empty}><p>${prefix ? html`No topic begins with <code>${prefix}</code>.` : 'No store has a topic yet.'}</p><//>`
        : html`<${Table} name="use" columns=${columns} rows=${rows} id=${t => t.store + '\0' + t.topic} query=${query} sort="-bytes" />
          <p class="muted">A day is the average between the first and the last event that are kept. The metrics have what retention has removed.</p>`}
    <//>`;
}
