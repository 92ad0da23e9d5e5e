// One sidecar: all that it has reported last.
import {Ago, html, Page, Time, topicLink, Waiting} from './ui.js';
import {address} from './router.js';
import {bytes, count, duration, perSecond, plural} from './format.js';
import {groupLink, reasons} from './groups.js';
import {State, Troubles, troublesOf} from './fleet.js';
import {useLive} from './live.js';
import {Table} from './table.js';

export function Sidecar({node, me}) {
  const path = '/v1/sidecars/' + encodeURIComponent(node);
  const live = useLive(path, {every: 5000});
  const policies = useLive('/v1/policies', {list: 'policy'});
  const topics = useLive('/v1/topics?limit=1000');
  const overview = useLive('/v1/overview', {every: 60_000, list: 'overview'});
  const s = live.data;
  const troubles = s ? troublesOf(s, overview.data?.incidents ?? []) : [];
  return html`
    <${Page} title=${node} code crumbs=${[['Fleet', address(['fleet'])]]} poll=${live} copy=${{path, cli: `sluice fleet show ${node}`, me}} actions=${s && html`<${State} s=${s} />`}>
      ${!s ? html`<${Waiting} poll=${live} />` : html`
        <${Troubles} list=${troubles} />
        ${!s.reported_at ? html`<p class="empty">It has not reported its health${s.connected ? ' yet' : ''}.</p>` : html`<${Health} s=${s} told=${troubles.length > 0} />`}
        <div class="columns">
          <${Versions} s=${s} latest=${new Map((policies.data?.policies ?? []).map(p => [p.name, p.version]))} />
          <${Shares} s=${s} topics=${topics.data?.topics ?? []} />
        </div>
        ${s.log?.length > 0 && html`<section aria-label="Log"><h2>Log <small>the last ${plural(s.log.length, 'line')} of level warn and above</small></h2><pre class="card log" tabindex="0">${s.log.join('\n')}</pre></section>`}`}
    <//>`;
}

const Figure = ({name, children}) => html`<div><dt>${name}</dt><dd>${children}</dd></div>`;

// Health is what it has reported; told says that its troubles are shown already.
function Health({s, told}) {
  return html`
    <section class="card" aria-label="Health">
      <dl class="figures wrap">
        <${Figure} name="Store">${s.store.state}<small>${s.store.kind}, for ${duration((Date.now() - Date.parse(s.store.since)) / 1000)}</small><//>
        <${Figure} name="Spool">${count(s.spool.events)}<small>${plural(s.spool.events, 'event').replace(/^\S+ /, '')}, ${bytes(s.spool.bytes)}</small><//>
        <${Figure} name="Disk free">${bytes(s.disk.free)}<small>low below ${bytes(s.disk.low_water)}</small><//>
        <${Figure} name="Memory of clients">${bytes(s.memory.used)}<small>of ${bytes(s.memory.bound)}</small><//>
        <${Figure} name="Connections">${count(s.connections)}<//>
        <${Figure} name="Uptime">${duration(s.uptime_s)}<//>
        <${Figure} name="Clock">${Math.abs(s.clock_skew_ms) < 1000 ? `${s.clock_skew_ms} ms` : `${(s.clock_skew_ms / 1000).toFixed(1)} s`}<small>from the control plane's</small><//>
        <${Figure} name="Reported"><${Ago} at=${s.reported_at} /><//>
      </dl>
      ${!told && s.store.state !== 'ok' && s.store.error && html`<p class="note bad">${s.store.error}</p>`}
      ${s.spool.oldest && html`<p>The oldest event in its spool is of <${Time} at=${s.spool.oldest} />.</p>`}
      <p class="muted">Version ${s.version || 'not known'}, replay API at <span class="code">${s.address || 'no address'}</span>, store <span class="code">${s.store_id}</span>, control plane <span class="code">${s.control_plane}</span></p>
    </section>
    ${s.groups.length > 0 && html`<section aria-label="Groups"><h2>Groups <small>this sidecar's part of them</small></h2>
      <${Table} name="groups" columns=${groupColumns(s.store_id)} rows=${s.groups} id=${g => g.topic + '\0' + g.group} /></section>`}
    ${s.dead_letters.length > 0 && html`<section aria-label="Dead letters"><h2>Dead letters</h2>
      <${Table} name="letters" columns=${letterColumns(s.store_id)} rows=${s.dead_letters} id=${d => d.topic + '\0' + d.group} /></section>`}
    ${s.sources.length > 0 && html`<section aria-label="Sources"><h2>Outboxes and captures</h2>
      <${Table} name="sources" columns=${sourceColumns} rows=${s.sources} id=${x => x.kind + '\0' + x.name} /></section>`}`;
}

const groupColumns = store => [
  {title: 'Group', className: 'code', cell: g => html`<a href=${groupLink(g.topic, g.group, store)}>${g.group}</a>${g.stuck_since && html` <span class="badge bad">stuck</span>`}`},
  {title: 'Topic', className: 'code', cell: g => html`<a href=${topicLink(g.topic)}>${g.topic}</a>`},
  {title: 'Lag', number: true, cell: g => count(g.lag)},
  {title: 'In flight', number: true, cell: g => count(g.inflight)},
  {title: 'Members', number: true, cell: g => count(g.members)},
  {title: 'Oldest unacked', number: true, cell: g => (g.oldest_unacked_s ? duration(g.oldest_unacked_s) : '–')},
  {title: 'What holds it up', className: 'what', cell: g => (g.paused ? 'The policy pauses it.' : g.blocked_by ? reasons[g.blocked_by] ?? g.blocked_by : '–')},
];

const letterColumns = store => [
  {title: 'Topic', className: 'code', cell: d => d.topic},
  {title: 'Group', className: 'code', cell: d => d.group || '–'},
  {title: 'Count', number: true, cell: d => html`<a href=${address(['topics', d.topic, 'dead-letters'], {group: d.group, store})}>${count(d.count)}</a>`},
  {title: 'Newest', cell: d => html`<${Ago} at=${d.newest} />`},
];

const sourceColumns = [
  {title: 'Name', className: 'code', cell: x => x.name},
  {title: 'Kind', cell: x => x.kind},
  {title: 'State', className: 'what', cell: x => html`<span class="dot ${x.failing || x.stopped ? 'wrong' : 'ok'}"></span>${x.state}`},
  {title: 'Given up', number: true, cell: x => count(x.failed)},
];

function Versions({s, latest}) {
  const names = Object.keys(s.versions ?? {}).sort();
  return html`
    <section class="card" aria-label="Policies in force"><h2>Policies in force</h2>
      ${names.length === 0 ? html`<p class="muted">None.</p>` : html`
        <table><thead><tr><th scope="col">Policy</th><th scope="col" class="number">Acked</th><th scope="col" class="number">Latest</th></tr></thead>
          <tbody>${names.map(name => html`
            <tr key=${name}><th scope="row" class="code">${name}</th><td class="number ${s.versions[name] < latest.get(name) ? 'warn' : ''}">${s.versions[name]}</td>
              <td class="number">${latest.get(name) ?? html`<span class="muted">deleted</span>`}</td></tr>`)}
          </tbody></table>`}
    </section>`;
}

function Shares({s, topics}) {
  const mine = topics.map(t => ({t, u: t.by_sidecar?.find(u => u.node_id === s.node_id)})).filter(e => e.u);
  return html`
    <section class="card" aria-label="Topics"><h2>Topics</h2>
      ${mine.length === 0 ? html`<p class="muted">None in use now.</p>` : html`
        <table>
          <thead><tr><th scope="col">Topic</th><th scope="col" class="number">Accepted /s</th><th scope="col" class="number">Refused /s</th>
            <th scope="col" class="number">Share /s</th></tr></thead>
          <tbody>${mine.map(({t, u}) => html`
            <tr key=${t.topic}><th scope="row" class="code"><a href=${topicLink(t.topic)}>${t.topic}</a></th><td class="number">${perSecond(u.allowed_per_second)}</td>
              <td class="number ${u.denied_per_second > 0 ? 'bad' : ''}">${perSecond(u.denied_per_second)}</td>
              <td class="number">${u.share_per_second == null ? html`<span class="muted">–</span>` : `${perSecond(u.share_per_second)} of ${perSecond(t.rate)}`}</td></tr>`)}
          </tbody></table>`}
    </section>`;
}
