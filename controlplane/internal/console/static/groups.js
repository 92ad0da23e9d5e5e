// Consumer groups: those of the fleet with the worst first, and those of one topic.
import {Empty, Filter, html, Page, topicLink, TopicTabs, Waiting} from './ui.js';
import {api, storePath} from './api.js';
import {address} from './router.js';
import {quote} from './copy.js';
import {count, duration, plural} from './format.js';
import {useLive} from './live.js';
import {inTurns, usePolled} from './polled.js';
import {Trend} from './sparkline.js';
import {StoreChoice, useStore} from './store.js';
import {Table} from './table.js';

// reasons are why a member is sent nothing right now, as a sentence.
export const reasons = {
  caught_up: 'There is nothing to send.',
  paused: 'It is paused, by itself or by the policy.',
  max_inflight: 'It has as many unacked events as it may: it has to ack some.',
  rate: 'The delivery rate is used up.',
  key_order: 'Earlier events of the same keys are in flight, and have to be acked first.',
  backoff: 'What is left waits for its next attempt.',
  no_partition: 'Other members have all partitions.',
  slow_reader: 'It does not read from its connection.',
  not_pulling: 'It pulls over HTTP, and is not asking now.',
};

export const groupLink = (topic, group, store) => address(['topics', topic, 'groups', group], {store});

// Blocked says what holds up a group: paused, stuck, without members, or what its members say.
export function Blocked({g}) {
  if (g.paused) return html`<span class="badge warn">paused</span> by the policy`;
  if (g.members === 0 && g.lag > 0) return html`<span class="bad">No consumer is connected.</span>`;
  const holding = (g.blocked ?? []).filter(why => why !== 'caught_up' && why !== 'no_partition');
  if (holding.length > 0) return html`${holding.map(why => html`<div key=${why}>${reasons[why] ?? why}</div>`)}`;
  return html`<span class="muted">${g.lag === 0 ? 'Caught up.' : 'Nothing.'}</span>`;
}

const columns = topic => [
  {title: 'Group', className: 'code', cell: g => html`<a href=${groupLink(g.topic, g.group, g.store)}>${g.group}</a>${g.stuck && html` <span class="badge bad">stuck</span>`}`},
  ...(topic ? [] : [{title: 'Topic', sort: 'topic', className: 'code', cell: g => html`<a href=${topicLink(g.topic)}>${g.topic}</a>`}]),
  {title: 'Lag', sort: !topic && 'lag', number: true, cell: g => count(g.lag)},
  {title: 'Trend', className: 'spark', cell: g => html`<${Trend} points=${g.trend} label=${`lag of ${g.group} in the last hour`} />`},
  {title: 'In flight', sort: !topic && 'inflight', number: true, cell: g => count(g.inflight)},
  {title: 'Oldest unacked', sort: !topic && 'oldest_unacked_s', number: true, cell: g => (g.oldest ? duration(g.oldest) : '–')},
  {title: 'Members', sort: !topic && 'members', number: true, cell: g => count(g.members)},
  {title: 'What holds it up', sort: !topic && 'trouble', className: 'what', cell: g => html`<${Blocked} g=${g} />`},
];

const worstFirst = (a, b) => Boolean(b.stuck) - Boolean(a.stuck) || b.lag - a.lag || (a.topic + a.group < b.topic + b.group ? -1 : 1);

const keyOf = g => [g.store, g.topic, g.group].join('\0');

// useLags reads the lags of the last hour, as the control plane keeps them: a Map of points {at, value} by group. Query selects groups.
export function useLags(query) {
  const live = useLive(query && '/v1/groups?' + new URLSearchParams({...query, history: 1}), {every: 30_000});
  const every = 1000 * live.data?.lag_every_s;
  return new Map(live.data?.groups.map(g => [keyOf(g), (g.lags ?? []).map((value, i, all) => ({at: live.at - (all.length - 1 - i) * every, value}))]));
}

// shownAs makes a row of what the control plane knows of a group.
const shownAs = lags => g => ({...g, key: keyOf(g), oldest: g.oldest_unacked_s, stuck: Boolean(g.stuck_since), blocked: g.blocked_by ? [g.blocked_by] : [],
  trend: lags.get(keyOf(g)) ?? []});

const page = 100; // rows

// AllGroups are the groups that sidecars report, those in trouble first.
export function AllGroups({query, me}) {
  const {prefix = '', group = '', cursor = '', sort = '-trouble'} = query;
  const selection = {limit: page, sort, ...(prefix && {prefix}), ...(group && {group}), ...(cursor && {cursor})};
  const path = '/v1/groups?' + new URLSearchParams(selection);
  const live = useLive(path, {every: 5000});
  const lags = useLags(selection);
  const rows = live.data?.groups.filter(g => g.group).map(shownAs(lags));
  return html`
    <${Page} title="Groups" poll=${live} copy=${{path, cli: `sluice fleet groups${prefix && ` --prefix ${quote(prefix)}`}`, me}}>
      <div class="toolbar"><${Filter} label="Topics that begin with" name="prefix" query=${query} /><${Filter} label="Group" name="group" query=${query} first=${false} />
        <span class="muted" role="status">${rows && plural(rows.length, 'group') + (live.data.next || cursor ? ' on this page' : '')}</span></div>
      ${!rows ? html`<${Waiting} poll=${live} />`
        : rows.length === 0 ? html`<${Empty}>${prefix || group ? html`<p>No such group has members or events that wait.</p>`
          : html`<p>No group has been at work yet: a consumer makes one.</p><p><code>sluice sub orders --group billing</code></p>`}<//>`
        : html`<${Table} name="groups" columns=${columns(false)} rows=${rows} id=${g => g.key} query=${query} sort="-trouble" next=${live.data.next} />`}
    <//>`;
}

// rowOf makes a row of the answer about one group.
export function rowOf(store, g, lags) {
  const key = keyOf({...g, store});
  const oldest = Math.max(0, ...g.members.map(m => m.oldest_unacked_ms)) / 1000;
  return {...g, key, store, members: g.members.length + (g.more ?? 0), oldest, trend: lags.get(key) ?? [],
    blocked: [...new Set(g.members.map(m => m.blocked_by).filter(Boolean))]};
}

const mostGroups = 100; // of a topic that are asked about

// Groups are those of one topic.
export function Groups({topic, query, me}) {
  const {store, stores, live: known} = useStore(query, topic);
  const path = store && storePath(store, 'topics', topic, 'groups');
  const live = usePolled(path, async signal => {
    const {groups} = await api.get(path, {signal});
    const found = await inTurns(groups.slice(0, mostGroups), group => api.get(`${path}/${encodeURIComponent(group)}`, {signal})
      .catch(error => { if (error.status !== 404) throw error; })); // it is gone meanwhile
    return {groups: found.filter(Boolean), more: groups.length - found.length};
  }, 5000);
  const lags = useLags(store && {store, topic, limit: 1000});
  const rows = live.data?.groups.map(g => rowOf(store, g, lags)).sort(worstFirst);
  return html`
    <${Page} title=${topic} code crumbs=${[['Topics', address(['topics'])]]} poll=${live}
      copy=${path && {path, cli: `sluice groups ${topic} --store ${store}`, me}}>
      <${TopicTabs} topic=${topic} store=${query.store} at="Groups" />
      <div class="toolbar"><${StoreChoice} stores=${stores} query=${{store}} />
        <span class="muted" role="status">${rows && plural(rows.length, 'group')}${live.data?.more > 0 && ` of ${count(rows.length + live.data.more)}`}</span></div>
      ${store === '' ? html`<${NoStore} />` : !rows ? html`<${Waiting} poll=${live.error ? live : known} />`
        : rows.length === 0 ? html`<${Empty}><p>Nobody has consumed <code>${topic}</code> in a group yet.</p><p><code>sluice sub ${topic} --group NAME</code></p><//>`
        : html`<${Table} name="groups" columns=${columns(true)} rows=${rows} id=${g => g.key} />`}
    <//>`;
}

export const NoStore = () => html`<${Empty}><p>No connected sidecar has a store, so nobody can be asked.</p><p><a href=${address(['fleet'])}>Look at the fleet</a></p><//>`;
