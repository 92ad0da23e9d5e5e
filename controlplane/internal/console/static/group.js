// One consumer group: its lag, what holds it up, its members and partitions, and what can be done.
import {denied, Guarded, html, Page, topicLink, TopicTabs, useState, Waiting} from './ui.js';
import {storePath} from './api.js';
import {address} from './router.js';
import {count, duration, plural} from './format.js';
import {useLive} from './live.js';
import {effective, shown} from './policy.js';
import {PauseGroup, Seek, SlowGroup} from './groupchanges.js';
import {Blocked, NoStore, reasons, rowOf, useLags} from './groups.js';
import {Plot} from './sparkline.js';
import {Rollout} from './rollout.js';
import {StoreChoice, useStore} from './store.js';
import {Table} from './table.js';

export function Group({topic, group, query, me}) {
  const {store, stores, live: known} = useStore(query, topic);
  const path = store && storePath(store, 'topics', topic, 'groups', group);
  const live = useLive(path || null, {every: 3000});
  const lags = useLags(store && {store, topic, group});
  const policies = useLive('/v1/policies', {list: 'policy'});
  const [doing, setDoing] = useState(null); // 'pause', 'slow', or the positions to seek to
  const [change, setChange] = useState(null); // of the policy
  const [moved, setMoved] = useState(null); // what the last seek replays
  const g = live.data;
  const list = policies.data?.policies;
  const limit = field => list && effective(`groups.${group}.${field}`, topic, list);
  const no = denied(me, 'operator', undefined, topic);
  const close = () => setDoing(null);
  const saved = policy => {
    close();
    setChange({name: policy.name, version: policy.version, at: Date.now()});
    policies.refresh();
  };
  const sought = plan => {
    close();
    setMoved(plan);
    live.refresh();
  };
  return html`
    <${Page} title=${group} code crumbs=${[['Topics', address(['topics'])], [topic, topicLink(topic)], ['Groups', address(['topics', topic, 'groups'], {store: query.store})]]}
      poll=${live} copy=${path && {path, cli: `sluice groups show ${topic} ${group} --store ${store}`, me}} actions=${g && list && html`
        ${no && html`<span class="muted">${no}</span>`}
        <${Guarded} denied=${no} onClick=${() => setDoing('pause')}>${limit('paused') ? 'Resume…' : 'Pause…'}<//>
        <${Guarded} denied=${no} onClick=${() => setDoing('slow')}>Slow down…<//>
        <${Guarded} denied=${no} onClick=${() => setDoing({})}>Seek…<//>`}>
      <${TopicTabs} topic=${topic} store=${query.store} at="Groups" />
      ${stores.length > 1 && html`<div class="toolbar"><${StoreChoice} stores=${stores} query=${{store}} /></div>`}
      ${change && html`<${Rollout} key=${change.version} change=${change} onDone=${() => setChange(null)} />`}
      ${moved && html`<${Moved} plan=${moved} lag=${g?.lag ?? 0} onDone=${() => setMoved(null)} />`}
      ${store === '' ? html`<${NoStore} />` : !g || g.group !== group ? html`<${Waiting} poll=${live.error ? live : store ? live : known} />`
        : html`<${Now} g=${g} row=${rowOf(store, g, lags)} limit=${limit} topic=${topic} store=${query.store} />
          <${Members} g=${g} /><${Partitions} g=${g} no=${no} onSkip=${p => setDoing({[p.partition]: p.cursor})} />`}
      ${doing === 'pause' && html`<${PauseGroup} ...${{topic, group, policies: list, paused: limit('paused')}} onSaved=${saved} onClose=${close} />`}
      ${doing === 'slow' && html`<${SlowGroup} ...${{topic, group, policies: list}} onSaved=${saved} onClose=${close} />`}
      ${doing && typeof doing === 'object' && html`<${Seek} path=${path} group=${group} positions=${doing} onDone=${sought} onClose=${close} />`}
    <//>`;
}

// Moved is the progress of what a seek replays.
function Moved({plan, lag, onDone}) {
  const left = Math.min(lag, plan.replays);
  return html`
    <section class="card rollout ${left === 0 ? 'complete' : ''}" aria-label="Progress of the seek">
      <div class="line"><div role="status"><b>The group is moved.</b> ${plan.replays === 0
        ? `${plural(plan.skips, 'event')} skipped.` : left === 0 ? 'All that is delivered again is settled.' : `${count(left)} of ${plural(plan.replays, 'event')} to be delivered again.`}</div>
        <button type="button" class="quiet" onClick=${onDone}>Close</button></div>
      ${plan.replays > 0 && html`<progress max=${plan.replays} value=${plan.replays - left} aria-label="Events delivered again"></progress>`}
    </section>`;
}

function Now({g, row, limit, topic, store}) {
  const rate = limit('rate'), most = limit('max_inflight');
  return html`
    <div class="columns">
      <section class="card" aria-label="Now">
        <dl class="figures">
          <div><dt>Lag</dt><dd>${count(g.lag)}</dd></div>
          <div><dt>In flight</dt><dd>${count(g.inflight)}${most > 0 && html`<small>of ${count(most)}</small>`}</dd></div>
          <div><dt>Oldest unacked</dt><dd>${row.oldest ? duration(row.oldest) : '–'}</dd></div>
          <div><dt>Rate limit</dt><dd>${rate > 0 ? html`${shown(rate)}<small>/s</small>` : 'none'}</dd></div>
        </dl>
        <h2>What holds it up</h2>
        <div class="why"><${Blocked} g=${row} /></div>
        <p><a href=${address(['topics', topic, 'dead-letters'], {group: g.group, store})}>Its dead letters</a></p>
      </section>
      <section class="card plot" aria-label="Lag">
        <h2>Lag</h2>
        <${Plot} points=${row.trend} unit="" label=${`lag of ${g.group} in the last hour`} />
      </section>
    </div>`;
}

const memberColumns = [
  {title: 'Member', className: 'code', cell: m => m.id},
  {title: 'Sidecar', className: 'code', cell: m => html`<a href=${address(['fleet', m.node_id])}>${m.node_id}</a>`},
  {title: 'Address', className: 'code', cell: m => m.address || '–'},
  {title: 'In flight', number: true, cell: m => `${count(m.inflight)} of ${count(m.max_inflight)}`},
  {title: 'Oldest unacked', number: true, cell: m => (m.inflight ? duration(m.oldest_unacked_ms / 1000) : '–')},
  {title: 'Partitions of its sidecar', className: 'code', cell: m => m.partitions.join(', ') || '–'},
  {title: 'Why it gets nothing now', className: 'what', cell: m => (m.blocked_by ? reasons[m.blocked_by] ?? m.blocked_by : html`<span class="muted">It gets events.</span>`)},
];

function Members({g}) {
  // Which partitions' events a member gets is its sidecar's to say: those that the sidecar owns.
  const rows = g.members.map(m => ({...m, partitions: g.partitions.filter(p => p.owner === m.node_id).map(p => p.partition)}));
  return html`
    <section aria-label="Members"><h2>Members</h2>
      ${rows.length === 0 ? html`<p class="empty">No consumer is connected: events wait until one subscribes.</p>`
        : html`<${Table} name="members" columns=${memberColumns} rows=${rows} id=${m => m.node_id + m.id} />`}
      ${g.more > 0 && html`<p class="muted">${plural(g.more, 'further member')}, which their sidecars had no room to tell of.</p>`}
      ${g.missing?.length > 0 && html`<p class="note warn">Members at ${g.missing.join(', ')} are not known: these sidecars did not say which within 10 s.</p>`}
    </section>`;
}

const partitionColumns = (no, onSkip) => [
  {title: 'Partition', cell: p => p.partition},
  {title: 'Owner', className: 'code', cell: p => (p.owner ? html`<a href=${address(['fleet', p.owner])}>${p.owner}</a>` : html`<span class="muted">nobody</span>`)},
  {title: 'Next seq', number: true, cell: p => p.cursor},
  {title: 'Latest seq', number: true, cell: p => p.head},
  {title: 'Lag', number: true, cell: p => count(p.lag)},
  {title: 'In flight', number: true, cell: p => count(p.inflight)},
  {title: 'Act', hidden: true, cell: p => p.lag > 0 && html`<${Guarded} class="quiet" denied=${no} aria-label=${`Skip the oldest event of partition ${p.partition}`} onClick=${() => onSkip(p)}>Skip the oldest…<//>`},
];

const Partitions = ({g, no, onSkip}) => html`
  <section aria-label="Partitions"><h2>Partitions</h2>
    <${Table} name="partitions" columns=${partitionColumns(no, onSkip)} rows=${g.partitions} id=${p => p.partition} />
  </section>`;
