// The home page: every topic in use, with its rates and the sidecars that refuse.
import {Filter, html, Page, PausedGroups, policyLink, topicLink, useRef, useState, Waiting} from './ui.js';
import {pausedGroups} from './policy.js';
import {perSecond, plural} from './format.js';
import {usePoll} from './poll.js';
import {Sparkline} from './sparkline.js';

const orders = {
  hottest: {label: 'Hottest', by: t => demand(t)},
  refused: {label: 'Most refused', by: t => recent(t, p => p.denied, t.denied_per_second)},
  name: {label: 'Name', by: () => 0},
};

const page = 100; // rows at first, and with each "more"

// recent is the mean of the last ten seconds: an order by the last second alone
// would never stand still.
function recent(topic, value, otherwise) {
  const points = (topic.history ?? []).slice(-10);
  return points.length ? points.reduce((sum, p) => sum + value(p), 0) / points.length : otherwise;
}

const demand = t => recent(t, p => p.allowed + p.denied, t.allowed_per_second + t.denied_per_second);

// useSteady keeps the order of the rows while the pointer or the focus is among
// them, so that no row moves under a click or loses the focus.
function useSteady(list) {
  const held = useRef(false);
  const last = useRef([]);
  if (held.current) {
    const place = new Map(last.current.map((topic, i) => [topic, i]));
    list = [...list].sort((a, b) => (place.get(a.topic) ?? Infinity) - (place.get(b.topic) ?? Infinity) || 0);
  }
  last.current = list.map(t => t.topic);
  const inside = e => e.currentTarget.matches(':hover') || e.currentTarget.contains(document.activeElement);
  const look = e => { held.current = inside(e); };
  return [list, {
    onMouseEnter: () => { held.current = true; }, onMouseLeave: look,
    onFocusIn: () => { held.current = true; },
    onFocusOut: e => { held.current = e.currentTarget.contains(e.relatedTarget) || e.currentTarget.matches(':hover'); },
  }];
}

export function Topics() {
  const poll = usePoll('/v1/topics?history=1&limit=1000', 1000);
  const known = usePoll('/v1/policies', 3000);
  const limiting = (known.data?.policies ?? []).filter(p => p.groups);
  const [order, setOrder] = useState('hottest');
  const [filter, setFilter] = useState('');
  const [most, setMost] = useState(page);
  const all = poll.data?.topics ?? [];
  const wanted = filter.trim().toLowerCase();
  const sorted = all.filter(t => t.topic.toLowerCase().includes(wanted))
    .map(t => ({t, rank: orders[order].by(t)}))
    .sort((a, b) => b.rank - a.rank || a.t.topic.localeCompare(b.t.topic)).map(e => e.t);
  const [rows, steady] = useSteady(sorted);
  const sum = key => all.reduce((n, t) => n + t[key], 0);
  return html`
    <${Page} title="Topics" poll=${poll} actions=${all.length > 0 && html`
      <span class="figures"><b>${perSecond(sum('allowed_per_second'))}</b>/s accepted
        <b class=${sum('denied_per_second') > 0 ? 'bad' : ''}>${perSecond(sum('denied_per_second'))}</b>/s refused</span>`}>
      <div class="toolbar">
        <${Filter} label="Filter topics" value=${filter} onValue=${setFilter} />
        <fieldset class="segments"><legend>Sort by</legend>
          ${Object.entries(orders).map(([key, {label}]) => html`
            <label key=${key}><input type="radio" name="order" value=${key} checked=${order === key} onChange=${() => setOrder(key)} /><span>${label}</span></label>`)}
        </fieldset>
        <span class="muted" role="status">${poll.data && (wanted ? `${plural(rows.length, 'topic')} of ${all.length}` : plural(all.length, 'topic'))}</span>
      </div>
      ${!poll.data ? html`<${Waiting} poll=${poll} />`
        : rows.length === 0 ? html`<p class="empty">${all.length ? 'No topic matches the filter.' : 'No sidecar has reported a topic yet. Publish something, and it appears here.'}</p>`
        : html`<${Table} rows=${rows.slice(0, most)} steady=${steady} limiting=${limiting} />`}
      ${rows.length > most && html`<button type="button" onClick=${() => setMost(most + page)}>Show ${Math.min(page, rows.length - most)} more</button>`}
    <//>`;
}

const Table = ({rows, steady, limiting}) => html`
  <table class="topics cards" ...${steady}>
    <thead><tr>
      <th scope="col">Topic</th><th scope="col">Last minute</th><th scope="col" class="number">Accepted /s</th>
      <th scope="col" class="number">Refused /s</th><th scope="col" class="number">Limit /s</th><th scope="col">Refused at</th><th scope="col">Policy</th>
    </tr></thead>
    <tbody>${rows.map(t => html`<${Row} key=${t.topic} t=${t} paused=${pausedGroups(t.topic, limiting)} />`)}</tbody>
  </table>`;

const Row = ({t, paused}) => html`
  <tr>
    <th scope="row" class="code"><a href=${topicLink(t.topic)}>${t.topic}</a>${t.paused && html` <span class="badge warn">paused</span>`}
      <${PausedGroups} names=${paused} /></th>
    <td class="spark"><${Sparkline} history=${t.history}
      label=${`last minute of ${t.topic}: ${perSecond(t.allowed_per_second)} accepted and ${perSecond(t.denied_per_second)} refused per second now`} /></td>
    <td class="number" data-label="Accepted /s">${perSecond(t.allowed_per_second)}</td>
    <td class="number ${t.denied_per_second > 0 ? 'bad' : 'muted'}" data-label="Refused /s">${perSecond(t.denied_per_second)}</td>
    <td class="number" data-label="Limit /s">${t.rate ? perSecond(t.rate) : 'none'}${' '}<small>${t.rate ? (t.scope === 'fleet' ? 'fleet' : 'each') : ''}</small></td>
    <td class="where" data-label="Refused at"><${Where} usages=${t.by_sidecar} /></td>
    <td class="code" data-label="Policy">${t.policy ? html`<a href=${policyLink(t.policy)}>${t.policy}</a>` : html`<span class="muted">defaults</span>`}</td>
  </tr>`;

// Where names the sidecars that refuse most.
function Where({usages}) {
  const refusing = (usages ?? []).filter(u => u.denied_per_second > 0).sort((a, b) => b.denied_per_second - a.denied_per_second);
  if (refusing.length === 0) return html`<span class="muted">–</span>`;
  const rest = refusing.length - 2;
  return html`${refusing.slice(0, 2).map(u => html`<span key=${u.node_id}><span class="code">${u.node_id}</span> ${perSecond(u.denied_per_second)}</span>`)}
    ${rest > 0 && html`<span class="muted">+${rest}</span>`}`;
}
